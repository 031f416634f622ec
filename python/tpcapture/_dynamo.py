"""torch.compile: taps in the regions that it compiles.

Dynamo does not look into functions of C. It is told, as soon as it is there, what to trace in place of each
hook: nothing at all where `TPCAPTURE` is unset, so that the generated code is that without taps, or else a
registered op, which is kept in its place and asks the selection when it runs. Nothing of torch is imported for
that: a finder waits until torch imports Dynamo.
"""

import importlib.abc
import importlib.util
import sys
import weakref
from _thread import get_ident
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tpcapture import _native

DYNAMO = "torch._dynamo"
OLDEST = (2, 10)
"""Of torch, whose Dynamo takes builtins and whose effects keep ops in order."""

_waiting: weakref.WeakSet[Any] = weakref.WeakSet()
"""Taps that were made before Dynamo was there."""

_known: set[Any] = set()
"""Taps that Dynamo knows; it keeps them itself."""

_tell: Callable[[Any], None] | None = None
"""Tells Dynamo what to trace in place of a tap, once it is there."""


def made(tap: Any) -> None:
    """A tap was made, or unpickled, or copied."""
    if _tell is None:
        _waiting.add(tap)
        return
    if tap in _known:
        # The same tap by another object, as a shallow copy makes: Dynamo has it.
        return
    _known.add(tap)
    try:
        _tell(tap)
    except Exception as error:
        _native.notice(f"torch.compile does not learn of tap {tap.__self__.name!r}: {error!r}")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Dynamo as the others do, and has its loader say when it is there."""

    def __init__(self) -> None:
        self._looking: set[int] = set()
        """Threads that ask the other finders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        me = get_ident()
        if name != DYNAMO or me in self._looking:
            return None
        self._looking.add(me)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.discard(me)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            load = loader.exec_module

            def load_and_tell(module: ModuleType) -> None:
                load(module)
                # Only now: whoever just asked where Dynamo is has not loaded it.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    appear()

            loader.exec_module = load_and_tell
        return spec


def watch() -> None:
    """Tells Dynamo about the hooks now, or when it is imported."""
    if DYNAMO in sys.modules:
        appear()
    else:
        sys.meta_path.insert(0, _Finder())


def appear() -> None:
    """Dynamo is there. Whatever goes wrong leaves torch as it is."""
    global _tell
    try:
        torch: Any = sys.modules["torch"]
        version = tuple(int(part) for part in torch.__version__.split(".")[:2])
        if version < OLDEST:
            _native.notice(
                f"torch {torch.__version__}: taps in regions of torch.compile break their graph; "
                "expected torch 2.10 or later"
            )
            return
        replace = _replacements(torch)
    except Exception as error:
        _native.notice(f"torch.compile does not learn of taps: {error!r}")
        return
    _tell = replace
    for tap in list(_waiting):
        made(tap)
    _waiting.clear()


def _replacements(torch: Any) -> Callable[[Any], None]:
    """Tells Dynamo about `capture` and `step`; how to tell it about a tap."""
    substitute = torch.compiler.substitute_in_graph

    def put(hook: Any, traced: Callable[..., None]) -> None:
        substitute(hook, skip_signature_check=True)(traced)

    if not _native.keeps_compiled_taps():

        def nothing(*_: Any, **__: Any) -> None:
            return None

        put(_native.capture, nothing)
        put(_native.step, nothing)
        return lambda tap: put(tap, nothing)

    capture, step = _ops(torch)

    def traced_capture(name: str, tensor: Any, *, placement: str | None = None, rows: Any = None) -> None:
        # A tensor that says how many rows are valid would have to be waited for.
        capture(tensor, name, placement, None if isinstance(rows, torch.Tensor) else rows)

    def traced_step() -> None:
        step()

    put(_native.capture, traced_capture)
    put(_native.step, traced_step)

    def tell(tap: Any) -> None:
        name, usual = tap.__self__.name, tap.__self__.placement

        def traced_tap(tensor: Any, *, placement: str | None = None, rows: Any = None) -> None:
            capture(
                tensor,
                name,
                usual if placement is None else placement,
                None if isinstance(rows, torch.Tensor) else rows,
            )

        put(tap, traced_tap)

    return tell


_library: Any = None
"""Keeps the ops registered."""


def _ops(torch: Any) -> tuple[Any, Any]:
    """The ops that stand in a compiled region for `capture` and `step`: in order, and never taken for dead code."""
    global _library
    _library = torch.library.Library("tpcapture", "DEF")
    tags = (torch.Tag.pt2_compliant_tag,)
    _library.define("capture(Tensor x, str name, str? placement=None, SymInt? rows=None) -> ()", tags=tags)
    _library.define("step() -> ()", tags=tags)

    def capture(x: Any, name: str, placement: str | None = None, rows: int | None = None) -> None:
        _native.capture(name, x, placement=placement, rows=rows)

    def no_capture(x: Any, name: str, placement: str | None = None, rows: int | None = None) -> None:
        return None

    def step() -> None:
        _native.step()

    def no_step() -> None:
        return None

    ops = torch.ops.tpcapture
    effects: Any = importlib.import_module("torch._higher_order_ops.effects")
    for name, run, fake in (("capture", capture, no_capture), ("step", step, no_step)):
        _library.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"tpcapture::{name}", fake, lib=_library)
        op = getattr(ops, name).default
        torch.fx.node.has_side_effect(op)
        effects._register_effectful_op(op, effects._EffectType.ORDERED)
    return ops.capture.default, ops.step.default
