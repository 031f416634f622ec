"""One rank of a small sharded model in NumPy, as vLLM shards and names it, with taps where attaching puts them.

Numbers are small integers in fp32, so that sums are exact in any order: whatever is put together rightly is IDENTICAL.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tpcapture

Array = NDArray[Any]

HEADS, HEAD, HIDDEN, INNER, VOCAB, PADDED, TOKENS = 8, 4, 16, 24, 50, 64, 5


def checkpoint(kv_heads: int, layers: int = 2) -> dict[str, Array]:
    """Whole weights under the names of a checkpoint."""
    rng = np.random.default_rng(7)

    def weight(*shape: int) -> Array:
        return rng.integers(-2, 3, shape).astype(np.float32)

    weights = {"model.embed_tokens.weight": weight(VOCAB, HIDDEN)}
    for i in range(layers):
        attn, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        weights |= {
            f"{attn}.q_proj.weight": weight(HEADS * HEAD, HIDDEN),
            f"{attn}.k_proj.weight": weight(kv_heads * HEAD, HIDDEN),
            f"{attn}.v_proj.weight": weight(kv_heads * HEAD, HIDDEN),
            f"{attn}.o_proj.weight": weight(HIDDEN, HEADS * HEAD),
            f"{mlp}.gate_proj.weight": weight(INNER, HIDDEN),
            f"{mlp}.up_proj.weight": weight(INNER, HIDDEN),
            f"{mlp}.down_proj.weight": weight(HIDDEN, INNER),
        }
    return weights | {"lm_head.weight": weight(VOCAB, HIDDEN)}


def shard(whole: Array, rank: int, world: int, axis: int = 0) -> Array:
    """The rank's slice; where there are fewer heads than ranks, neighbours have the same one."""
    slices = min(world, whole.shape[axis] // HEAD)
    return np.ascontiguousarray(np.split(whole, slices, axis)[rank * slices // world])


def sums(parts: list[Array]) -> Array:
    """What an all-reduce gives; small again, so that numbers stay exact."""
    return np.asarray(sum(parts)) % 5


def capture_parameters(weights: dict[str, Array], rank: int, world: int) -> None:
    def parameter(module: str, weight: Array) -> None:
        tpcapture.capture(f"{module}.param.weight", np.ascontiguousarray(weight))

    def cut(name: str, axis: int = 0) -> Array:
        return np.ascontiguousarray(np.split(weights[f"{name}.weight"], world, axis)[rank])

    for name in ("model.embed_tokens", "lm_head"):
        whole = np.zeros((PADDED, HIDDEN), np.float32)
        whole[:VOCAB] = weights[f"{name}.weight"]
        parameter(name, np.split(whole, world)[rank])
    for i in range(2):
        attn, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        qkv = [shard(weights[f"{attn}.{part}_proj.weight"], rank, world) for part in "qkv"]
        parameter(f"{attn}.qkv_proj", np.concatenate(qkv))
        parameter(f"{attn}.o_proj", cut(f"{attn}.o_proj", 1))
        parameter(f"{mlp}.gate_up_proj", np.concatenate([cut(f"{mlp}.gate_proj"), cut(f"{mlp}.up_proj")]))
        parameter(f"{mlp}.down_proj", cut(f"{mlp}.down_proj", 1))


def forward(weights: dict[str, Array], rank: int, world: int, layers: range) -> None:
    """What the rank's taps see. Every rank computes all parts, as there is nobody to reduce with."""
    x = weights["model.embed_tokens.weight"][np.arange(TOKENS)]
    for i in range(layers.stop):
        attn, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        q, k, v = (x @ weights[f"{attn}.{part}_proj.weight"].T % 7 for part in "qkv")
        context = q % 3
        partials = [
            c @ w.T
            for c, w in zip(
                np.split(context, world, 1), np.split(weights[f"{attn}.o_proj.weight"], world, 1), strict=True
            )
        ]
        x = sums(partials)
        gate, up = (x @ weights[f"{mlp}.{part}_proj.weight"].T % 7 for part in ("gate", "up"))
        act = gate % 3
        down = weights[f"{mlp}.down_proj.weight"]
        pairs = zip(np.split(act, world, 1), np.split(down, world, 1), strict=True)
        y = sums([a @ w.T for a, w in pairs])
        if i in layers:
            qkv = np.concatenate([shard(part, rank, world, 1) for part in (q, k, v)], 1)
            tpcapture.capture(f"{attn}.qkv_proj.0", qkv)
            tpcapture.capture(f"{attn}.o_proj.in.0", np.ascontiguousarray(np.split(context, world, 1)[rank]))
            tpcapture.capture(f"{attn}.o_proj.0", x)
            both = np.concatenate([np.split(part, world, 1)[rank] for part in (gate, up)], 1)
            tpcapture.capture(f"{mlp}.gate_up_proj.0", both)
            tpcapture.capture(f"{mlp}.down_proj.0", y)
        x = y


def one(
    path: Path, rank: int, world: int, *, kv_heads: int = 2, layers: tuple[int, int] = (0, 2), **env: str
) -> None:
    """One of `world` ranks, in a process of its own, with taps in these layers; writes into the run `path`."""
    # Takes the variables of a rank out of the environment, and so is not for the rank itself.
    from conftest import clean_env

    where = {"TPCAPTURE": "1", "TPCAPTURE_DIR": str(path.parent), "TPCAPTURE_RUN": path.name}
    identity = {"RANK": str(rank), "WORLD_SIZE": str(world)}
    command = [sys.executable, __file__, *map(str, (rank, world, kv_heads, *layers))]
    subprocess.run(command, env=clean_env(**(where | identity | env)), check=True)


def run(path: Path, world: int, *, kv_heads: int = 2, layers: tuple[int, int] = (0, 2)) -> Path:
    """A run of all ranks."""
    for rank in range(world):
        one(path, rank, world, kv_heads=kv_heads, layers=layers)
    return path


def main() -> None:
    rank, world, kv_heads, first, last = map(int, sys.argv[1:6])
    weights = checkpoint(kv_heads, 4)
    capture_parameters(weights, rank, world)
    tpcapture.step()
    forward(weights, rank, world, range(first, last))


if __name__ == "__main__":
    main()
