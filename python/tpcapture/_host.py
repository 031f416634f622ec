"""What the native half asks when a capture begins: who is this process, what does it run; and when will it exit.

Frameworks are looked up among the loaded modules and never imported.
"""

import atexit
import os
import platform
import sys
from typing import Any

from tpcapture import _native

Dims = list[tuple[str, int, int]]
"""Mesh dimensions: name, coordinate, size."""

Word = tuple[str, int, int, Dims | None]
"""Who says so, global rank, world size, place in the mesh where it is known."""


def settle() -> tuple[Word | None, dict[str, str]]:
    """Who this process is, by the most trusted framework that knows, and the versions of what is loaded."""
    remember_to_seal()
    return vllm() or torch_distributed(), versions()


def vllm() -> Word | None:
    """vLLM's parallel_state. Its workers have no RANK variable."""
    state = sys.modules.get("vllm.distributed.parallel_state")
    world: Any = getattr(state, "_WORLD", None)
    if world is None:
        return None
    dims = []
    for name in ("dp", "pp", "pcp", "tp", "dcp", "ep"):
        group = getattr(state, f"_{name.upper()}", None)
        if group is not None:
            dims.append((name, int(group.rank_in_group), int(group.world_size)))
    return "vllm", int(world.rank_in_group), int(world.world_size), dims


def torch_distributed() -> Word | None:
    """An initialised torch.distributed, which knows no mesh."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return "torch.distributed", int(dist.get_rank()), int(dist.get_world_size()), None


def versions() -> dict[str, str]:
    """Versions of Python and of the frameworks that are loaded."""
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "jax", "transformers", "vllm", "sglang"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


_capturing_process: int | None = None
"""The process, or the one it was forked from, that captured or marked a step while a capture was on."""


def remember_to_seal() -> None:
    """This process captures: what is open when it exits is to be sealed.

    Children of multiprocessing leave by `os._exit`, past atexit, and run only multiprocessing's own finalisers, of
    which a forked child has forgotten those of its parent: so each process that captures has its own.
    """
    global _capturing_process
    if _capturing_process == os.getpid():
        return
    _capturing_process = os.getpid()
    process: Any = sys.modules.get("multiprocessing.process")
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _native.switch_off, args=("exit",), exitpriority=0)


@atexit.register
def seal() -> None:
    """Seal what is open when the process exits, after whatever else is captured on the way out.

    Registered at import, as handlers run in reverse order, and one that is registered while they run does not.
    """
    if _capturing_process is not None:
        _native.switch_off("exit")
