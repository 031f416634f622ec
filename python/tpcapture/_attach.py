"""`attach`: taps on the modules of a model, with no edit to its code."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpcapture._torch import Attachment


def attach(
    model: Any, patterns: str = "*", what: str | Sequence[str] = "output", *, steps: bool = True
) -> "Attachment":
    """Tap the modules of a torch model whose names match, by hooks.

    patterns: globs over the names of `model.named_modules()`, comma-separated, as in a selection: `*` crosses dots,
        `{0..3}` and `{q,k}_proj` expand. The model itself has the empty name and is called `model`.
    what: one or several of
        `output`: records `NAME`; of a tuple or list `NAME.0`, of a dict or dataclass `NAME.key`, at any depth;
        `input`: positional arguments `NAME.in.0`, the others `NAME.in.key`;
        `grad`: gradients of the outputs that require them, `NAME.grad` and so on;
        `params`: `NAME.param.weight`, in each run once, at the first forward pass of the model that is captured.
    steps: each forward pass of `model` begins a step.

    Placements are filled in where a module says how it is sharded: the parallel layers of vLLM and Megatron. Attaching
    the same again changes nothing. Hooks run where a module is called: a direct `module.forward(x)` passes them by, and
    code that torch.compile compiled before has none of them. ValueError: a pattern or `what` does not parse, or no
    module matches. TypeError: `model` is no torch.nn.Module.
    """
    if not hasattr(model, "register_forward_hook"):
        raise TypeError(f"model: expected a torch.nn.Module, found {type(model).__name__}")
    # The model is torch's, so torch is there.
    from tpcapture import _torch

    return _torch.attach(model, patterns, what, steps=steps)
