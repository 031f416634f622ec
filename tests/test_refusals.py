"""What cannot be captured is counted with the reason and said once; the model goes on as if nothing were there."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import Launch, clean_env
from torch._subclasses.fake_tensor import FakeTensorMode

import tpcapture

TENSOR = torch.arange(8.0).reshape(4, 2)


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(3)


def freed() -> torch.Tensor:
    tensor = torch.zeros(5)
    tensor.untyped_storage().resize_(0)
    return tensor


def conjugated() -> torch.Tensor:
    return torch.ones(3, dtype=torch.complex64).conj()


NO_PLACE = "has no place in a safetensors file"
NO_TENSOR = "expected a tensor (DLPack or the array interface), found"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "on meta": (lambda: torch.empty(3, device="meta"), "it is on meta: only tensors in host memory"),
    "sparse coo": (lambda: torch.eye(3).to_sparse(), "its layout is torch.sparse_coo, not torch.strided"),
    "sparse csr": (lambda: torch.eye(3).to_sparse_csr(), "its layout is torch.sparse_csr, not torch.strided"),
    "FakeTensor": (fake, "it has 3 elements but no memory (a FakeTensor, or freed storage)"),
    "freed storage": (freed, "it has 5 elements but no memory (a FakeTensor, or freed storage)"),
    "conjugate bit": (conjugated, "its conjugate bit is set: capture x.resolve_conj()"),
    "negative bit": (lambda: conjugated().imag, "its negative bit is set: capture x.resolve_neg()"),
    "big-endian float": (lambda: np.zeros(3, ">f4"), 'its typestr is ">f4", big-endian'),
    "big-endian integer": (lambda: np.zeros(3, ">i8"), 'its typestr is ">i8", big-endian'),
    "structured": (lambda: np.zeros(3, [("a", "f4")]), f"its dtype void32 {NO_PLACE}"),
    "object": (lambda: np.array([object()]), f"its dtype object {NO_PLACE}"),
    "datetime": (lambda: np.zeros(3, "M8[ns]"), f"its dtype datetime64[ns] {NO_PLACE}"),
    "text array": (lambda: np.array(["abc"]), f"its dtype str96 {NO_PLACE}"),
    "long double": (lambda: np.zeros(3, np.longdouble), "its dtype float"),
    "complex32": (lambda: torch.zeros(3, dtype=torch.complex32), f"its dtype torch.complex32 {NO_PLACE}"),
    "float8_e3m4": (lambda: np.zeros(4, ml_dtypes.float8_e3m4), f"its dtype float8_e3m4 {NO_PLACE}"),
    "int4": (lambda: np.zeros(4, ml_dtypes.int4), f"its dtype int4 {NO_PLACE}"),
    "three fp4": (
        lambda: np.zeros(3, ml_dtypes.float4_e2m1fn),
        "its 3 elements of 4 bits do not fill whole bytes",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(TENSOR, 0.1, 0, torch.quint8),
        f"its dtype torch.quint8 {NO_PLACE}",
    ),
    "a string": (lambda: "q", f"{NO_TENSOR} str"),
    "None": (lambda: None, f"{NO_TENSOR} NoneType"),
    "a number": (lambda: 7, f"{NO_TENSOR} int"),
    "a list": (lambda: [1.0, 2.0], f"{NO_TENSOR} list"),
    "a class": (lambda: dict, f"{NO_TENSOR} type"),
}  # fmt: skip


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that tpcapture wrote to stderr."""
    return [line for line in capfd.readouterr().err.splitlines() if line.startswith("[tpcapture]")]


# torch warns of what is beta, experimental or deprecated.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_a_tensor_that_cannot_be_had_is_counted_and_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], case: str
) -> None:
    make, why = REFUSED[case]
    tensor = make()
    with tpcapture.capturing(tmp_path) as path:
        for _ in range(3):
            assert tpcapture.capture("x", tensor) is None
        tpcapture.capture("y", TENSOR)
    status = tpcapture.status()
    [loss] = status["losses"]
    assert (loss["tap"], loss["count"]) == ("x", 3)
    assert loss["reason"].startswith(why)
    assert (status["counters"]["refused"], status["counters"]["lost"]) == (3, 0)
    assert said(capfd) == [f'[tpcapture] tap "x": {loss["reason"]}']
    run = tpcapture.open(path)
    assert run.taps == ["y"]
    [manifest] = run.manifests.values()
    assert manifest["losses"] == [loss]


def unpaired() -> str:
    return "q\udc80"


# Arguments as in `capture(*args, **kwargs)`, and how the reason begins.
WRONG_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "no arguments": ((), {}, "capture() takes a name and a tensor"),
    "no tensor": (("x",), {}, "capture() takes a name and a tensor"),
    "a tensor only": ((), {"tensor": TENSOR}, "capture() takes a name and a tensor"),
    "three in a row": (("x", TENSOR, 3), {}, "capture() takes at most 2 positional arguments, found 3"),
    "unknown keyword": (("x", TENSOR), {"row": 3}, 'capture() has no parameter "row"'),
    "twice the same": (("x", TENSOR), {"tensor": TENSOR}, 'capture() got "tensor" twice'),
    "a number for a name": ((3, TENSOR), {}, "name: expected str, found int"),
    "None for a name": ((None, TENSOR), {}, "name: expected str, found NoneType"),
    "a lone surrogate": ((unpaired(), TENSOR), {}, "name: 'utf-8' codec can't encode character '\\udc80'"),
    "1025 bytes": (("ü" * 512 + "x", TENSOR), {}, "tap üüü"),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_call_that_makes_no_sense_is_counted_and_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], case: str
) -> None:
    args, kwargs, why = WRONG_CALLS[case]
    with tpcapture.capturing(tmp_path):
        for _ in range(2):
            assert tpcapture.capture(*args, **kwargs) is None
        tpcapture.capture("y", TENSOR)
    [loss] = tpcapture.status()["losses"]
    assert (loss["tap"], loss["count"]) == ("", 2)
    assert loss["reason"].startswith(why)
    assert len(said(capfd)) == 1


def test_a_name_of_1024_bytes_is_captured(tmp_path: Path) -> None:
    name = "ü" * 512
    with tpcapture.capturing(tmp_path) as path:
        tpcapture.capture(name, TENSOR)
    assert tpcapture.open(path).taps == [name]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (-1, "rows: can't convert negative int"),
        (10**30, "rows: int too big"),
        (2.0, "rows: 'float' object"),
        ("2", "rows: 'str' object"),
        (torch.tensor(2.5), "rows: only integer tensors"),
        (torch.tensor([1, 2]), "rows: only integer tensors"),
        (torch.empty((), dtype=torch.int64, device="meta"), "rows: it is on meta"),
    ],
)
def test_rows_that_are_no_number_of_rows_are_left_out(tmp_path: Path, rows: Any, why: str) -> None:
    with tpcapture.capturing(tmp_path) as path:
        tpcapture.capture("x", TENSOR, rows=rows)
    [loss] = tpcapture.status()["losses"]
    assert loss["reason"].startswith(why)
    assert loss["reason"].endswith("captured without")
    record = tpcapture.open(path)["x"].ranks[None]
    assert (record.rows, record.torch().tolist()) == (None, TENSOR.tolist())


@pytest.mark.parametrize("placement", ["S(x)", "S(0)/", "Q", 3, unpaired()])
def test_a_placement_that_does_not_parse_is_left_out(tmp_path: Path, placement: Any) -> None:
    with tpcapture.capturing(tmp_path) as path:
        tpcapture.capture("x", TENSOR, placement=placement)
        tpcapture.tap("y")(TENSOR, placement=placement)
    losses = tpcapture.status()["losses"]
    assert [loss["tap"] for loss in losses] == ["x", "y"]
    assert all(loss["reason"].endswith("captured without a placement") for loss in losses)
    run = tpcapture.open(path)
    assert [run[tap].ranks[None].placement for tap in ("x", "y")] == [None, None]


def test_a_taps_own_placement_that_does_not_parse_is_said_when_it_is_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tap = tpcapture.tap("x", placement="S(0")
    [line] = said(capfd)
    assert line.startswith('[tpcapture] tap "x": placement "S(0", column 3')
    with tpcapture.capturing(tmp_path) as path:
        tap(TENSOR)
    assert tpcapture.open(path)["x"].ranks[None].placement is None


@pytest.mark.parametrize(("name", "shown"), [("x" * 1025, "x" * 1025), (unpaired(), "q\ufffd\ufffd\ufffd")])
def test_a_tap_whose_name_cannot_be_had_is_said_when_it_is_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, shown: str
) -> None:
    tap = tpcapture.tap(name)
    [line] = said(capfd)
    assert line.startswith(f'[tpcapture] tap "{shown}": not captured: its name is')
    with tpcapture.capturing(tmp_path) as path:
        tap(TENSOR)
    assert not path.exists()


def test_a_run_in_which_all_was_refused_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with tpcapture.capturing(tmp_path, run="r") as path:
        tpcapture.capture("x", None)
    last = '[tpcapture] run "r": nothing was captured, all that its taps were given was refused'
    assert said(capfd)[-1] == last
    [manifest] = tpcapture.open(path).manifests.values()
    reason = "expected a tensor (DLPack or the array interface), found NoneType"
    assert manifest["losses"] == [{"tap": "x", "reason": reason, "count": 1}]


STRICT = """
import json, numpy as np, tpcapture
tensor = np.zeros(4)
tap = tpcapture.tap("t")
calls = {
    "refused": lambda: tpcapture.capture("x", np.zeros(4, ">f4")),
    "refused by a tap": lambda: tap("q"),
    "no arguments": lambda: tpcapture.capture(),
    "no name": lambda: tpcapture.capture(3, tensor),
    "bad keyword": lambda: tap(tensor, row=1),
    "fine": lambda: tap(tensor),
}
found = {}
for case, call in calls.items():
    try:
        call()
        found[case] = None
    except Exception as error:
        found[case] = [type(error).__name__, str(error)]
print(json.dumps(found))
"""


def test_strict_raises_what_otherwise_is_counted(rank: Launch) -> None:
    found = json.loads(rank(STRICT, TPCAPTURE="1", TPCAPTURE_STRICT="1").stdout)
    big_endian = 'tap "x": its typestr is ">f4", big-endian, and records are little-endian'
    assert found == {
        "refused": ["CaptureError", big_endian],
        "refused by a tap": ["CaptureError", f'tap "t": {NO_TENSOR} str'],
        "no arguments": ["TypeError", "capture() takes a name and a tensor"],
        "no name": ["TypeError", "name: expected str, found int"],
        "bad keyword": ["TypeError", 'tap() has no parameter "row"'],
        "fine": None,
    }


def test_strict_raises_nothing_while_off() -> None:
    code = "import tpcapture; tpcapture.capture(); tpcapture.capture(3, 4, 5, row=6); tpcapture.tap('t')()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_env(TPCAPTURE_STRICT="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def pairs() -> torch.Tensor:
    return torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


def empty_beyond_any_file() -> Any:
    class Empty:
        @property
        def __array_interface__(self) -> dict[str, Any]:
            shape = (2**62, 2**62, 0)
            return {"version": 3, "typestr": "<f4", "shape": shape, "data": (8, False)}

    return Empty()


NO_WHOLE = "is no whole number of bytes that fits 64 bits"
SIZES = ",".join(["1"] * 3_000_000)
# What one record cannot be, and why; the next one is captured all the same.
ODD: dict[str, tuple[Callable[[], Any], str, dict[str, Any], str]] = {
    "half a byte of fp4": (
        lambda: np.zeros((4, 3), ml_dtypes.float4_e2m1fn), "*[head=1]", {}, f"F4 [1, 3] {NO_WHOLE}"
    ),
    "six bits of fp6": (
        lambda: np.zeros((8, 1), ml_dtypes.float6_e2m3fn), "*[head=3]", {}, f"F6_E2M3 [3, 1] {NO_WHOLE}"
    ),
    "empty and huge": (empty_beyond_any_file, "*", {}, NO_WHOLE),
    "a long placement": (
        lambda: TENSOR, "*", {"placement": f"S(0, sections=[{SIZES}])"}, "expected a header of at most 4194304 bytes"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_one_record_that_cannot_be_written_does_not_end_the_capture(tmp_path: Path, case: str) -> None:
    make, select, arguments, reason = ODD[case]
    with tpcapture.capturing(tmp_path, select=select) as path:
        tpcapture.capture("odd", make(), **arguments)
        tpcapture.capture("next", TENSOR)
        tpcapture.flush()
        assert tpcapture.status()["state"] == "capturing"
    status = tpcapture.status()
    [loss] = status["losses"]
    assert (loss["tap"], loss["count"]) == ("odd", 1)
    assert reason in loss["reason"]
    assert [point.tap for point in tpcapture.open(path)] == ["next"]
    assert (status["counters"]["records"], status["last_error"]) == (1, None)


@pytest.mark.parametrize(
    ("make", "arguments", "select", "rows"),
    [
        (lambda: np.float32(1), {"rows": 3}, "*", (None, None)),
        (lambda: np.complex128(1), {"rows": 3}, "*", (None, None)),
        (pairs, {"rows": 3}, "*", (6, None)),
        (pairs, {}, "*[head=3]", (None, 8)),
    ],
)
def test_rows_are_those_of_the_record(
    tmp_path: Path,
    make: Callable[[], Any],
    arguments: dict[str, int],
    select: str,
    rows: tuple[int | None, int | None],
) -> None:
    """A scalar has none, and two fp4 in one byte of a vector are two rows."""
    with tpcapture.capturing(tmp_path, select=select) as path:
        tpcapture.capture("x", make(), **arguments)
    [record] = tpcapture.open(path)["x"].records
    assert (record.rows, record.full_rows) == rows


def test_a_ctrl_c_that_came_in_the_hook_is_raised_in_the_model(tmp_path: Path) -> None:
    class Interrupted:
        @property
        def __array_interface__(self) -> dict[str, Any]:
            raise KeyboardInterrupt

    def model() -> None:
        tpcapture.capture("x", Interrupted())
        for _ in range(1000):
            pass

    with tpcapture.capturing(tmp_path), pytest.raises(KeyboardInterrupt):
        model()
