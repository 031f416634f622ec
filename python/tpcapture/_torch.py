"""Taps on the modules of a torch model, with no edit to its code: `attach`. Loaded only when it is called."""

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from tpcapture import _native
from tpcapture._parallel import of_module, of_parameter

WHAT = ("output", "input", "grad", "params")


class Attachment:
    """What `attach` has put on a model. `detach()` takes it away; so does the end of a `with` block."""

    def __init__(self, names: list[str], let_go: list[Callable[[], None]]) -> None:
        self.names = names
        """The modules that are tapped."""
        self._let_go = let_go

    def detach(self) -> None:
        """Takes the hooks away that nobody else has attached as well."""
        while self._let_go:
            self._let_go.pop()()

    def __enter__(self) -> "Attachment":
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"<attached to {len(self.names)} modules>"


def attach(model: torch.nn.Module, patterns: str, what: str | Sequence[str], *, steps: bool) -> Attachment:
    """See `tpcapture.attach`."""
    kinds = [what] if isinstance(what, str) else list(what)
    kinds = [part.strip() for kind in kinds for part in kind.replace("|", ",").split(",")]
    for kind in kinds:
        if kind not in WHAT:
            raise ValueError(f"what: expected {', '.join(WHAT)} or several of them, found {kind!r}")
    modules = [(name or "model", module) for name, module in model.named_modules()]
    matches = _native.matching(patterns, [name for name, _ in modules])
    chosen = [pair for pair, is_match in zip(modules, matches, strict=True) if is_match]
    if not chosen:
        raise ValueError(f"patterns={patterns!r}: expected a module's name, such as {modules[-1][0]!r}")
    let_go = []
    if steps:
        let_go.append(_hook(model, "steps", "", lambda: model.register_forward_pre_hook(_step)))
    if "params" in kinds:
        let_go.append(
            _hook(model, "params", patterns, lambda: model.register_forward_pre_hook(_Parameters(chosen)))
        )
    for name, module in chosen:
        for kind in kinds:
            if kind != "params":
                let_go.append(_hook(module, kind, name, partial(_register, module, name, kind)))
    return Attachment([name for name, _ in chosen], let_go)


_hooks: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], list[Any]]] = weakref.WeakKeyDictionary()
"""By module, kind and name: the handle of its hook, and how many attachments want it."""


def _hook(module: Any, kind: str, name: str, register: Callable[[], Any]) -> Callable[[], None]:
    """Registers a hook, unless it is there; how to let it go."""
    of_this = _hooks.setdefault(module, {})
    held = of_this.setdefault((kind, name), [None, 0])
    if held[1] == 0:
        held[0] = register()
    held[1] += 1

    def let_go() -> None:
        held[1] -= 1
        if held[1] == 0:
            held[0].remove()
            of_this.pop((kind, name), None)

    return let_go


def _step(_module: Any, _args: Any) -> None:
    _native.step()


def _register(module: Any, name: str, kind: str) -> Any:
    if kind == "input":
        placement = of_module(module, "input")

        def before(_module: Any, args: Any, kwargs: Any) -> None:
            _capture(f"{name}.in", args, placement)
            _capture(f"{name}.in", kwargs, placement)

        return module.register_forward_pre_hook(before, with_kwargs=True)
    placement = of_module(module, "output")
    tap = _native.tap(name, placement=placement)

    def after(_module: Any, _args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            # The usual case, and the fastest.
            tap(output)
        else:
            _capture(name, output, placement)

    def after_with_grad(_module: Any, _args: Any, output: Any) -> None:
        for part, tensor in _tensors(f"{name}.grad", output):
            if tensor.requires_grad:
                tensor.register_hook(lambda grad, part=part: _native.capture(part, grad, placement=placement))

    return module.register_forward_hook(after if kind == "output" else after_with_grad)


def _capture(name: str, value: Any, placement: str | None) -> None:
    for part, tensor in _tensors(name, value):
        _native.capture(part, tensor, placement=placement)


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The tensors in whatever a module takes or returns, each with its name."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for i, part in enumerate(value):
            yield from _tensors(f"{name}.{i}", part)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _tensors(f"{name}.{key}", part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(f"{name}.{field.name}", getattr(value, field.name))


class _Parameters:
    """Captures the parameters of modules, in each run once."""

    def __init__(self, modules: list[tuple[str, Any]]) -> None:
        self._modules = [(name, weakref.ref(module)) for name, module in modules]
        self._run: object = None

    def __call__(self, _module: Any, _args: Any) -> None:
        if torch.compiler.is_compiling():
            return
        run = _native.run_now()
        if run is None or run == self._run:
            return
        self._run = run
        for name, held in self._modules:
            module = held()
            if module is None:
                continue
            for key, parameter in module.named_parameters(recurse=False):
                placement = of_parameter(module, key)
                _native.capture(f"{name}.param.{key}", parameter, placement=placement)
