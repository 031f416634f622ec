"""Exits with 0 where the machine has a CUDA device that can be captured from, and says what it lacks where not."""

import sys

import torch

if not torch.cuda.is_available():
    print("no CUDA device here: nothing was run")
    sys.exit(1)
