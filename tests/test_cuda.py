"""Tensors on CUDA devices, through Python, on the simulated driver (docs/cuda-sim.md)."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import Finished, Launch

import tpcapture

ROOT = Path(__file__).parent.parent
START = "import sys; sys.path.insert(0, 'tests')\nimport cuda, numpy as np\ndriver = cuda.load()\n"
START += "import tpcapture\nfrom cuda import Lent, OnDevice\n"

Program = Callable[..., Finished]


REAL = "CUDA_DRIVER" in os.environ
simulated = pytest.mark.skipif(REAL, reason="only the simulated driver can be held or made to fail")


@pytest.fixture(scope="session")
def simulator() -> str:
    if REAL:
        return os.environ["CUDA_DRIVER"]
    subprocess.run(["cargo", "build", "--quiet", "--locked", "-p", "cuda-sim"], cwd=ROOT, check=True)
    return str(ROOT / "target" / "debug" / "libcuda_sim.so")


@pytest.fixture
def program(rank: Launch, simulator: str, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Runs code on the simulated driver."""
    monkeypatch.chdir(ROOT)

    def run(code: str, **env: str) -> Finished:
        return rank(START + code, **{"TPCAPTURE": "1", "CUDA_DRIVER": simulator} | env)

    return run


def arrays() -> dict[str, Any]:
    """By name: every dtype that the interface can name, and every kind of layout."""
    numbers = np.arange(-60, 60).reshape(4, 5, 6)
    kinds = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]
    kinds += [
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ]
    found = {}
    for kind in kinds:
        dtype = np.dtype(getattr(ml_dtypes, kind, kind))
        base = np.abs(numbers).astype(dtype) if kind == "float8_e8m0fnu" else numbers.astype(dtype)
        found |= {
            f"{kind}.whole": base,
            f"{kind}.sliced": base[:, :, 1:5],
            f"{kind}.transposed": base.transpose(2, 0, 1),
            f"{kind}.reversed": base[::-1, :, ::-2],
            f"{kind}.expanded": np.broadcast_to(base[1, 2], (3, 6)),
            f"{kind}.scalar": base[1, 2, 3:4].reshape(()),
            f"{kind}.empty": base[:, :0],
            f"{kind}.odd": np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:]
            .view(dtype)
            .reshape(base.shape),
        }
    special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e300, -1e-300, 5e-324])
    found |= {
        "special.f8": special,
        "special.f4": np.array([np.nan, np.inf, -np.inf, 0, -0.0, 3e38, 1e-45], "f4"),
    }
    return found


OF_A_FRAMEWORK = """
stream = driver.stream()
made, later = OnDevice(np.zeros((60, 40), "f4")[:, 3:33], stream), OnDevice(np.arange(2400, dtype="f4"), stream)
{define}
driver.cuda_sim_gate(stream, 0)
driver.cuMemcpyAsync(made.memory, later.memory, made.n_bytes, stream)
tpcapture.capture("x", {tensor})
made.overwrite()
driver.cuda_sim_gate(stream, -1)
"""

OLD_TORCH = """
import sys, types
class Tensor:
    layout, is_nested, dtype = "torch.strided", False, "torch.float32"
    device = types.SimpleNamespace(type="cuda", index=0)
    shape = made.array.shape
    def data_ptr(self): return made.first
    def stride(self): return tuple(s // 4 for s in made.array.strides)
    def is_neg(self): return False
Tensor.__module__ = "torch"
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch.cuda"] = cuda_of_torch = types.ModuleType("torch.cuda")
cuda_of_torch.current_stream = lambda device: types.SimpleNamespace(cuda_stream=stream)
"""


@simulated
@pytest.mark.parametrize(
    ("define", "tensor"),
    [
        ("from cuda import Exchanged; Exchanged.current_stream = stream", "Exchanged(made)"),
        (OLD_TORCH, "Tensor()"),
    ],
    ids=["exchange API", "torch before 2.10"],
)
def test_the_stream_is_the_one_that_the_framework_works_on(
    program: Program, define: str, tensor: str
) -> None:
    """Columns 3 to 32 of a matrix of 40 columns, which the stream makes late and spoils right after."""
    done = program(OF_A_FRAMEWORK.format(define=define, tensor=tensor))
    assert done.complaints == ""
    record = tpcapture.open(done.run_dir)["x"].ranks[None]
    # Only the bytes from its first to its last item are there: the array begins where they do.
    expected = [[40 * i + j for j in range(30)] for i in range(60)]
    assert (record.device, record.numpy().tolist()) == ("cuda:0", expected)


LARGE = """
rows = np.arange(300 * 1000, dtype="f4").reshape(300, 1000)
tpcapture.capture("whole", OnDevice(rows))
tpcapture.capture("columns", OnDevice(rows[:, 5:777]))
tpcapture.capture("turned", OnDevice(rows.T))
"""


def test_tensors_larger_than_the_devices_ring_pass_in_pieces(program: Program) -> None:
    done = program(LARGE, TPCAPTURE_DEVICE_RING="64KiB")
    assert done.complaints == ""
    rows = np.arange(300 * 1000, dtype="f4").reshape(300, 1000)
    run = tpcapture.open(done.run_dir)
    for name, expected in {"whole": rows, "columns": rows[:, 5:777], "turned": rows.T}.items():
        assert (run[name].ranks[None].numpy() == expected).all(), name


SEVERAL = """
from test_cuda import arrays
for name, array in arrays().items():
    tpcapture.capture(name, OnDevice(array, stream={stream}))
    tpcapture.capture("host." + name, array)
"""


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("stream", [1, 2, "driver.stream()"])
@pytest.mark.parametrize("device_ring", ["64MiB", "0"])
def test_every_dtype_in_every_layout(program: Program, stream: int | str, device_ring: str) -> None:
    done = program(SEVERAL.format(stream=stream), TPCAPTURE_DEVICE_RING=device_ring)
    assert done.complaints == ""
    run = tpcapture.open(done.run_dir)
    for name, array in arrays().items():
        record = run[name].ranks[None]
        assert record.device == ("cuda:0" if array.size else "cpu"), name
        assert bits(record.numpy()) == bits(array), name


def digests(run_dir: Path) -> dict[str, Any]:
    (path,) = run_dir.glob("*.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return {record["tap"]: record for record in records}


@pytest.mark.parametrize("device_ring", ["64MiB", "0"])
def test_statistics_are_those_of_the_host(program: Program, device_ring: str) -> None:
    done = program(SEVERAL.format(stream=1), TPCAPTURE="*=stats", TPCAPTURE_DEVICE_RING=device_ring)
    assert done.complaints == ""
    found = digests(done.run_dir)
    for name in arrays():
        ours, host = found[name]["stats"], found["host." + name]["stats"]
        for figure, expected in host.items():
            tolerance = 1e-9 * host["rms"] if figure in ("mean", "rms") else 0
            assert abs(ours[figure] - expected) <= tolerance, (name, figure, ours, host)


@pytest.mark.parametrize("device_ring", ["64MiB", "0"])
def test_hashes_are_those_of_the_host(program: Program, device_ring: str) -> None:
    done = program(SEVERAL.format(stream=1), TPCAPTURE="*=hash", TPCAPTURE_DEVICE_RING=device_ring)
    assert done.complaints == ""
    found = digests(done.run_dir)
    for name in arrays():
        assert found[name]["hash"] == found["host." + name]["hash"], name


@simulated
def test_a_record_is_of_the_call_on_the_tensors_stream(program: Program) -> None:
    code = """
stream = driver.stream()
made = OnDevice(np.zeros(50_000, "f4"), stream)
later = OnDevice(np.arange(50_000, dtype="f4"), stream)
driver.cuda_sim_gate(stream, 0)
for i in range(8):
    driver.cuMemcpyAsync(made.memory, later.memory, made.n_bytes, stream)
    tpcapture.capture(f"x{i}", made)
    made.overwrite()
driver.cuda_sim_gate(stream, -1)
"""
    done = program(code)
    assert done.complaints == ""
    run = tpcapture.open(done.run_dir)
    for i in range(8):
        assert (run[f"x{i}"].ranks[None].numpy() == np.arange(50_000)).all()


def test_without_a_ring_of_the_device_records_of_any_length_follow_each_other(program: Program) -> None:
    """Three numbers of 16 bits, and then words that a kernel writes behind them."""
    code = """
short, long = np.arange(3, dtype="i2"), np.arange(1000, dtype="f8")
for i in range(4):
    tpcapture.capture("short", OnDevice(short))
    tpcapture.capture("turned", OnDevice(long.reshape(20, 50)[:, ::2].T))
    tpcapture.capture("long.hash", OnDevice(long[1:]))
    tpcapture.capture("long.stats", OnDevice(long[1:]))
"""
    select = "*.hash=hash, *.stats=stats, *"
    done = program(code, TPCAPTURE=select, TPCAPTURE_DEVICE_RING="0")
    assert done.complaints == ""
    long = np.arange(1000.0)
    turned = tpcapture.open(done.run_dir)["turned", 0, 3].ranks[None]
    assert (turned.numpy() == long.reshape(20, 50)[:, ::2].T).all()
    assert digests(done.run_dir)["long.stats"]["stats"]["mean"] == 500


def test_a_digest_larger_than_the_devices_ring_is_lost_by_name(program: Program) -> None:
    code = """
tpcapture.capture("large", OnDevice(np.zeros(3_000_000, "u1")))
tpcapture.capture("small", OnDevice(np.zeros(3, "u1")))
"""
    done = program(code, TPCAPTURE="*=stats", TPCAPTURE_DEVICE_RING="64KiB")
    reason = "cuda:0: larger than the device's ring (TPCAPTURE_DEVICE_RING)"
    assert done.complaints == f'[tpcapture] tap "large": {reason}\n'
    assert list(digests(done.run_dir)) == ["small"]


@simulated
def test_dlpack_without_a_stream_is_kept_until_it_is_packed(program: Program) -> None:
    code = """
lent = Lent(OnDevice(np.arange(12, dtype="f4").reshape(3, 4).T))
driver.cuda_sim_gate(1, 0)
tpcapture.capture("x", lent)
assert (lent.asked_for, lent.returned) == ([None], 0), (lent.asked_for, lent.returned)
driver.cuda_sim_gate(1, -1)
tpcapture.flush()
import time
for _ in range(1000):
    if lent.returned: break
    time.sleep(0.001)
assert lent.returned == 1
managed = OnDevice(np.arange(12, dtype="f4"), kind="cuMemAllocManaged")
tpcapture.capture("managed", Lent(managed, Lent.KIND_MANAGED))
tpcapture.capture("pinned", OnDevice(np.arange(12, dtype="f4"), kind="cuMemHostAlloc"))
"""
    done = program(code)
    assert done.complaints == ""
    run = tpcapture.open(done.run_dir)
    assert (run["x"].ranks[None].numpy() == np.arange(12).reshape(3, 4).T).all()
    for name in ["managed", "pinned"]:
        assert (run[name].ranks[None].numpy() == np.arange(12)).all()


HOST_TOO = """
x = {x}
tpcapture.capture("device", x)
tpcapture.capture("device", x)
tpcapture.capture("host", np.arange(3.0))
"""


def check_refused(done: Finished, reason: str) -> None:
    """The reason is said once, and the tensor in host memory is there."""
    assert done.complaints == f'[tpcapture] tap "device": {reason}\n'
    run = tpcapture.open(done.run_dir)
    assert list(run["host"].ranks[None].numpy()) == [0, 1, 2]
    assert "device" not in run.taps


@simulated
@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"CUDA_SIM_CAPABILITY": "7.5", "CUDA_SIM_NAME": "Tesla T4"},
         "it is on cuda:0: Tesla T4, driver 13.2: expected compute capability 8.0 or later, found 7.5"),
        ({"CUDA_SIM_DRIVER": "11080", "CUDA_SIM_NAME": "A100"},
         "it is on cuda:0: A100, driver 11.8: the driver does not take the image sm_120: cuModuleLoadData: "
         "CUDA_ERROR_NO_BINARY_FOR_GPU; expected a driver of CUDA 12.8 or later"),
    ],
)  # fmt: skip
def test_devices_that_are_too_old_are_named(program: Program, env: dict[str, str], reason: str) -> None:
    check_refused(program(HOST_TOO.format(x="OnDevice(np.arange(3.0))"), **env), reason)


@simulated
def test_a_slice_of_a_device_is_a_device(program: Program) -> None:
    done = program(HOST_TOO.format(x="OnDevice(np.arange(3.0))"), CUDA_SIM_NAME="H200 MIG 1g.18gb")
    assert done.complaints == ""
    assert list(tpcapture.open(done.run_dir)["device"].ranks[None].numpy()) == [0, 1, 2]


PRETENDED = """
import numpy as np, ctypes
{load}
import tpcapture
class OnDevice:
    __cuda_array_interface__ = dict(version=3, shape=(3,), typestr="<f4", data=(0x7f0000000000, False), strides=None)
"""


def test_without_a_driver_host_memory_is_captured(rank: Launch) -> None:
    code = PRETENDED.format(load="") + HOST_TOO.format(x="OnDevice()")
    reason = (
        "libcuda.so.1 is not there: no NVIDIA driver is installed, or the container was started without it"
    )
    check_refused(rank(code, TPCAPTURE="1"), reason)


@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ("int cuInit(unsigned f) { return 34; }",
         "the driver has no cuGetErrorName: expected one of CUDA 12.0 or later"),
        ("int cuInit(unsigned f) { return 0; } int cuDriverGetVersion(int* v) { *v = 11040; return 0; }",
         "the driver of CUDA 11.4 has no cuGetErrorName: expected one of CUDA 12.0 or later"),
    ],
)  # fmt: skip
def test_drivers_that_lack_something_are_named(
    rank: Launch, tmp_path: Path, functions: str, reason: str
) -> None:
    source, library = tmp_path / "stub.c", tmp_path / "libcuda.so.1"
    source.write_text(functions)
    build = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)]
    subprocess.run(build, check=True)
    code = PRETENDED.format(load=f"ctypes.CDLL({str(library)!r})") + HOST_TOO.format(x="OnDevice()")
    check_refused(rank(code, TPCAPTURE="1"), reason)


def test_a_stub_on_the_way_is_passed_over(program: Program, tmp_path: Path) -> None:
    (tmp_path / "stub.c").write_text("int cuInit(unsigned f) { return 34; }")
    build = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so"), str(tmp_path / "stub.c")]
    subprocess.run(build, check=True)
    done = program('tpcapture.capture("x", OnDevice(np.arange(3.0)))', LD_LIBRARY_PATH=str(tmp_path))
    assert done.complaints == ""
    assert list(tpcapture.open(done.run_dir)["x"].ranks[None].numpy()) == [0, 1, 2]


@simulated
def test_a_stub_that_does_not_start_is_named(rank: Launch, simulator: str) -> None:
    code = PRETENDED.format(load=f"ctypes.CDLL({simulator!r})") + HOST_TOO.format(x="OnDevice()")
    done = rank(code, TPCAPTURE="1", CUDA_SIM_DRIVER="0")
    check_refused(done, "the driver does not start: cuInit: CUDA_ERROR_STUB_LIBRARY")


def test_addresses_that_cuda_does_not_know_are_refused(program: Program) -> None:
    code = """
class Wild:
    __cuda_array_interface__ = dict(version=3, shape=(3,), typestr="<f4", data=(0x7f0000000000, False), strides=None)
tpcapture.capture("wild", Wild())
class Long:
    inner = OnDevice(np.arange(4, dtype="f4"))
    __cuda_array_interface__ = inner.__cuda_array_interface__ | {"shape": (1 << 20,), "strides": None}
tpcapture.capture("long", Long())
class Zero:
    __cuda_array_interface__ = OnDevice(np.arange(4.0)).__cuda_array_interface__ | {"stream": 0}
tpcapture.capture("zero", Zero())
tpcapture.capture("right", OnDevice(np.arange(4.0)))
"""
    done = program(code)
    run = tpcapture.open(done.run_dir)
    assert list(run["right"].ranks[None].numpy()) == [0, 1, 2, 3]
    assert [line.split('"')[1] for line in done.complaints.splitlines()] == ["wild", "long", "zero"]
    assert "CUDA knows no memory at 0x7f0000000000" in done.complaints


@simulated
def test_the_device_ring_is_made_in_advance(program: Program) -> None:
    code = """
assert tpcapture.prepare() == ["cuda:0"], tpcapture.prepare()
assert tpcapture.prepare(1) == ["cuda:1"]
driver.cuda_sim_memory(0, 0)
x = OnDevice.__new__(OnDevice)
tpcapture.capture("x", held)
"""
    code = "held = OnDevice(np.arange(4.0))\n" + code.replace("x = OnDevice.__new__(OnDevice)\n", "")
    done = program(code)
    assert done.complaints == ""
    assert list(tpcapture.open(done.run_dir)["x"].ranks[None].numpy()) == [0, 1, 2, 3]


@simulated
def test_without_device_memory_the_capture_of_the_device_ends(program: Program) -> None:
    code = """
held = OnDevice(np.arange(4.0))
driver.cuda_sim_memory(0, 1 << 20)
for _ in range(3):
    tpcapture.capture("device", held)
tpcapture.capture("host", np.arange(3.0))
tpcapture.flush()
print(tpcapture.status()["last_error"])
"""
    done = program(code)
    assert "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    assert "no 67108864 bytes for TPCAPTURE_DEVICE_RING; set it lower, to 0 for none, or call" in done.stdout
    run = tpcapture.open(done.run_dir)
    assert list(run["host"].ranks[None].numpy()) == [0, 1, 2]
    assert "it has ended for that device" in done.complaints


def test_rows_on_a_device_are_not_waited_for(program: Program) -> None:
    code = """
rows = OnDevice(np.array(2))
rows_index = type("Rows", (OnDevice,), {"__index__": lambda self: 1 / 0, "__dlpack__": lambda self: None})
tpcapture.capture("x", np.arange(3.0), rows=rows_index(np.array(2)))
"""
    done = program(code)
    assert "captured without" in done.complaints
    assert "and reading it would wait for the device" in done.complaints


def test_cuda_does_not_survive_fork(program: Program) -> None:
    code = """
import os
x = OnDevice(np.arange(3.0))
tpcapture.capture("x", x)
if os.fork() == 0:
    tpcapture.capture("x", x)
    print(tpcapture.status()["losses"])
    import sys; sys.stdout.flush()
    os._exit(0)
os.wait()
"""
    done = program(code)
    assert "CUDA does not survive fork" in done.stdout
