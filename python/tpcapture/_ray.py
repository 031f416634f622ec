"""A comparison's tasks on a Ray cluster: `tpcapture compare --engine ray`.

Each machine lists what it has of a run, tasks read tensors where they lie, and bytes of other machines come through
Ray's object store. What is measured, and what becomes of it, is the native module's matter.
"""

import logging
import os
from typing import Any

from tpcapture import _native

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise ImportError("the engine ray needs the package ray: pip install 'tpcapture[ray]'") from error


def _list(path: str, node: int) -> tuple[bytes | None, str]:
    """What this machine has of a run, or why there is nothing; variables in the path are this machine's."""
    try:
        return _native.spread_list(os.path.expandvars(path), node), ""
    except OSError as error:
        return None, str(error)


def _fetch(plan: bytes, node: int, places: bytes) -> bytes:
    return _native.spread_fetch(plan, node, places)


def _work(plan: bytes, node: int, items: bytes, *fetched: bytes) -> bytes:
    return _native.spread_work(plan, node, items, list(fetched))


class Cluster:
    """The Ray cluster that this process is connected to, or that RAY_ADDRESS or this machine has."""

    def __init__(self) -> None:
        """Connect. ConnectionError where there is no cluster."""
        if not ray.is_initialized():
            ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
        alive = (node for node in ray.nodes() if node["Alive"])  # type: ignore[no-untyped-call]
        self._nodes: list[str] = sorted(node["NodeID"] for node in alive)

    def _on(self, node: int, function: Any) -> Any:
        """The function as a task of that machine."""
        where = NodeAffinitySchedulingStrategy(self._nodes[node], soft=False)
        return ray.remote(function).options(scheduling_strategy=where, num_cpus=1, max_retries=1)

    def list_run(self, path: os.PathLike[str]) -> list[tuple[bytes | None, str]]:
        """What every machine has of the run at a path, or why there is nothing."""
        text = os.fspath(path)
        return ray.get([self._on(node, _list).remote(text, node) for node in range(len(self._nodes))])

    def share(self, plan: bytes) -> None:
        """Put the plan where all tasks find it."""
        self._plan = ray.put(plan)

    def run(self, tasks: list[tuple[int, bytes, list[tuple[int, bytes]]]]) -> list[bytes]:
        """Run tasks, (machine, items, [(machine, records to fetch)]) each, and return what they return."""
        running = []
        for node, items, fetches in tasks:
            fetched = [self._on(at, _fetch).remote(self._plan, at, places) for at, places in fetches]
            running.append(self._on(node, _work).remote(self._plan, node, items, *fetched))
        return ray.get(running)
