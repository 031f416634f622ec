"""For people's own tests: `assert_same("out/tp1", "out/tp8")`."""

import os
from collections.abc import Sequence
from typing import Literal

from tpcapture._report import Report, compare
from tpcapture._run import Run

__all__ = ["assert_same"]


def assert_same(
    run_a: str | os.PathLike[str] | Run,
    run_b: str | os.PathLike[str] | Run | None = None,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    layouts: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    only_common: bool = False,
    noise: str | os.PathLike[str] | Run | None = None,
    pair: Literal["step", "abs", "inputs"] = "step",
    fail_on_nan: bool = False,
    allow_suspect: bool = False,
    tap: str | None = None,
    step: int | str | None = None,
    engine: Literal["local", "ray"] = "local",
    mmap: bool = True,
) -> Report:
    """Fail with the terminal report unless the runs are the same but for rounding; the report where they are.

    Arguments and errors are those of `tpcapture.compare`. AssertionError: a difference was found, a file cannot be
    read, or nothing was compared.
    """
    __tracebackhide__ = True
    report = compare(
        run_a,
        run_b,
        checkpoint=checkpoint,
        layouts=layouts,
        only_common=only_common,
        noise=noise,
        pair=pair,
        fail_on_nan=fail_on_nan,
        allow_suspect=allow_suspect,
        tap=tap,
        step=step,
        engine=engine,
        mmap=mmap,
    )
    if not report.ok:
        raise AssertionError(str(report))
    return report
