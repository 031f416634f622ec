"""Cut a full checkpoint into one rank's weights.

Column-parallel weights are cut along their output rows, row-parallel ones along their input columns, everything else
is replicated. ``kv_b_proj`` needs care, and has a right and a wrong way here: see `shard_kv_b`.
"""

from pathlib import Path
from typing import Literal

import torch
from config import Config
from safetensors import safe_open

COLUMN_PARALLEL = ("q_b_proj", "gate_proj", "up_proj", "lm_head")  # weight is cut in dim 0
ROW_PARALLEL = ("o_proj", "down_proj")  # weight is cut in dim 1

KvBSplit = Literal["heads", "rows"]


def load_shard(
    path: Path, config: Config, rank: int, world: int, kv_b_split: KvBSplit
) -> dict[str, torch.Tensor]:
    """This rank's part of every weight in the checkpoint."""
    shards = {}
    with safe_open(path, framework="pt") as checkpoint:
        for name in checkpoint.keys():  # noqa: SIM118 - safe_open is no mapping
            weight = checkpoint.get_tensor(name)
            module = name.split(".")[-2]
            if module == "kv_b_proj":
                weight = shard_kv_b(weight, config, rank, world, kv_b_split)
            elif module in COLUMN_PARALLEL:
                weight = weight.chunk(world, dim=0)[rank]
            elif module in ROW_PARALLEL:
                weight = weight.chunk(world, dim=1)[rank]
            shards[name] = weight.contiguous()
    return shards


def shard_kv_b(weight: torch.Tensor, config: Config, rank: int, world: int, split: KvBSplit) -> torch.Tensor:
    """This rank's heads of ``kv_b_proj``, rows in the model's order [k_0 | v_0 | k_1 | v_1 | ...].

    The checkpoint has [K of all heads ; V of all heads], so each of these two sections has to be cut by itself
    (``heads``). Cutting the whole into ``world`` equal blocks of rows (``rows``) gives every rank a block of the right
    shape with the wrong rows: at two ranks the first gets all the keys, the second all the values. With one rank both
    ways give the same, which is why the fault shows only with tensor parallelism.
    """
    k_rows, v_rows = config.heads * config.qk_nope_dim, config.heads * config.v_dim
    if split == "heads":
        keys, values = (part.chunk(world)[rank] for part in weight.split([k_rows, v_rows]))
    else:
        block = weight.chunk(world)[rank]
        keys, values = block.split([k_rows // world, v_rows // world])
    heads = config.heads // world
    per_head = [keys.unflatten(0, (heads, config.qk_nope_dim)), values.unflatten(0, (heads, config.v_dim))]
    return torch.cat(per_head, dim=1).flatten(0, 1)
