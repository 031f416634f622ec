"""A short soak; `make soak` is the long one."""

import random

import soak


def test_a_short_soak() -> None:
    soak.main(12, random.randrange(10**6))
