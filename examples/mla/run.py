"""One rank of the demo's inference: a prefill of five tokens, then two decode steps.

    python -m torch.distributed.run --standalone --nproc-per-node 2 run.py CHECKPOINT [--kv-b-split rows]

Nothing here switches capture on: that is the environment's business (TPCAPTURE=1, TPCAPTURE_DIR, TPCAPTURE_RUN).
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from config import Config
from loader import load_shard
from model import Model

import tpcapture

# The tokens are given, not sampled: one token chosen otherwise would make all that follows differ.
STEPS = ([17, 301, 42, 8, 256], [99], [404])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--kv-b-split", choices=["heads", "rows"], default="heads", help="rows is the fault")
    args = parser.parse_args()

    torch.set_num_threads(1)  # so that sums are taken in the same order in every run
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    config = Config()
    if config.heads % world:
        parser.error(f"{config.heads} heads cannot be shared by {world} ranks")
    model = Model(config)
    model.load_state_dict(load_shard(args.checkpoint, config, rank, world, args.kv_b_split))

    position = 0
    with torch.inference_mode():
        for tokens in STEPS:
            tpcapture.step()
            model(torch.tensor(tokens), torch.arange(position, position + len(tokens)))
            position += len(tokens)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
