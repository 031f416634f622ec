"""A comparison's tasks on a Ray cluster: `tpcapture compare --engine ray`.

Each machine lists what it has of a run, tasks read tensors where they lie, and bytes of other machines come through
Ray's object store. What is measured, and what becomes of it, is the native module's matter.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any

from tpcapture import _native

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise ImportError("the engine ray needs the package ray: pip install 'tpcapture[ray]'") from error


def _list(path: str, checkpoint: bool, node: int) -> tuple[bytes | None, str]:
    """What this machine has of a run or checkpoint, or why it has none; variables in the path are this machine's."""
    try:
        return _native.spread_list(os.path.expandvars(path), checkpoint, node), ""
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
        # What is fetched for each task, until it has ended.
        self._fetched: dict[Any, list[Any]] = {}

    def _start(self, node: int, function: Any, *arguments: Any) -> Any:
        """Start a task of that machine, and return its result to come."""
        where = NodeAffinitySchedulingStrategy(self._nodes[node], soft=False)
        task = ray.remote(function).options(scheduling_strategy=where, num_cpus=1, max_retries=1)
        return task.remote(*arguments)

    def start_list(self, path: os.PathLike[str], checkpoint: bool) -> list[Any]:
        """Have every machine list what it has of a run or checkpoint at a path, or say why there is nothing."""
        text = os.fspath(path)
        return [self._start(node, _list, text, checkpoint, node) for node in range(len(self._nodes))]

    def share(self, plan: bytes) -> None:
        """Put the plan where all tasks find it."""
        self._plan = ray.put(plan)

    def start_work(self, tasks: Sequence[tuple[int, bytes, Sequence[tuple[int, bytes]]]]) -> list[Any]:
        """Start tasks, (machine, items, [(machine, records to fetch)]) each."""
        running = []
        for node, items, fetches in tasks:
            fetched = [self._start(at, _fetch, self._plan, at, places) for at, places in fetches]
            running.append(self._start(node, _work, self._plan, node, items, *fetched))
            self._fetched[running[-1]] = fetched
        return running

    def are_done(self, tasks: list[Any], timeout_s: float) -> bool:
        """Wait that long for tasks to end."""
        if not tasks:
            return True
        ended, running = ray.wait(tasks, num_returns=len(tasks), timeout=timeout_s, fetch_local=False)
        for task in ended:
            self._fetched.pop(task, None)
        return not running

    def results(self, tasks: list[Any]) -> list[Any]:
        """Return what tasks that have ended return, in order."""
        return list(ray.get(tasks))

    def cancel(self, tasks: list[Any]) -> None:
        """End tasks and what is fetched for them, native code or not."""
        for task in tasks:
            for each in (*self._fetched.get(task, ()), task):
                ray.cancel(each, force=True)
