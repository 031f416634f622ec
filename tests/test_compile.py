"""torch.compile: taps in compiled regions are traced to nothing, or kept and asked when the code runs."""

from pathlib import Path

import pytest
from conftest import Launch

import tpcapture

MODEL = """
{imports}
early = tpcapture.tap("early", placement="S(0)")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(8, 8)
        self.tap = tpcapture.tap("late")
    def forward(self, x, n):
        tpcapture.step()
        early(x)
        h = self.proj(x)
        self.tap(h, rows=n)
        h.add_(1)
        tpcapture.capture("inline", h, placement="R")
        self.tap(h[:, 2:4])
        self.tap(torch.relu(h) * 3)
        return h * 2
torch.manual_seed(0)
model = Model()
inputs = [(torch.randn(n, 8), n - 1) for n in (4, 5, 7)]
"""
COMPILED = "compiled = torch.compile(model, backend={backend!r}, fullgraph=True, dynamic=True)\n"
RUN = """
with torch.no_grad():
    for x, n in inputs:
        assert torch.allclose(compiled(x, n), (model.proj(x) + 1) * 2, atol=1e-5)
"""
FIRST = "import tpcapture, torch, importlib.util; importlib.util.find_spec('torch._dynamo')"
SECOND = "import torch, torch._dynamo, tpcapture"


def program(*parts: str, imports: str = FIRST, backend: str = "aot_eager") -> str:
    return MODEL.format(imports=imports) + COMPILED.format(backend=backend) + "".join(parts)


def records(run: Path) -> dict[tuple[str, int, int], tpcapture.Record]:
    """By tap, step and call."""
    found = {}
    for point in tpcapture.open(run):
        for record in point.records:
            found[point.tap, record.step, record.call] = record
    return found


@pytest.mark.parametrize(
    ("backend", "imports"), [("aot_eager", FIRST), ("aot_eager", SECOND), ("inductor", FIRST)]
)
def test_a_compiled_region_captures_what_eager_code_does(rank: Launch, backend: str, imports: str) -> None:
    """In order, before what changes a tensor in place, of views, and of values that only the tap uses."""
    eager = rank(MODEL.format(imports=imports) + "compiled = model" + RUN, run="eager", TPCAPTURE="1")
    done = rank(program(RUN, imports=imports, backend=backend), TPCAPTURE="1")
    assert done.complaints == ""
    expected, found = records(eager.run_dir), records(done.run_dir)
    assert list(found) == list(expected)
    assert len(found) == 15
    for key, record in found.items():
        same = expected[key]
        assert (record.placement, record.rows, record.shape) == (same.placement, same.rows, same.shape), key
        assert abs(record.numpy() - same.numpy()).max() < 1e-5, key


def test_unset_generated_code_is_that_without_taps(rank: Launch) -> None:
    code = """
from torch._inductor.utils import run_and_get_code
def code_of(model):
    torch._dynamo.reset()
    with torch.no_grad():
        return run_and_get_code(torch.compile(model, fullgraph=True), *inputs[0])[1]
tapped = code_of(model)
nothing = lambda *_, **__: None
class Bare(Model):
    def forward(self, x, n):
        h = self.proj(x)
        h.add_(1)
        return h * 2
bare = Bare()
bare.load_state_dict(model.state_dict())
def without_names(code):
    return [line for line in code[0].splitlines() if not line.lstrip().startswith("#")]
assert len(without_names(tapped)) > 50
assert without_names(tapped) == without_names(code_of(bare))
print("equal")
"""
    done = rank(MODEL.format(imports=FIRST) + code, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    assert done.stdout == "equal\n"


def test_a_kept_tap_is_switched_and_asks_the_selection_when_it_runs(rank: Launch) -> None:
    """Compiled while off; five rows are captured, and only while on."""
    code = """
with torch.no_grad():
    for x, n in inputs: compiled(x, n)
    tpcapture.on("early[dim0=5], late[call=1]=hash")
    for x, n in inputs: compiled(x, n)
    tpcapture.off()
    for x, n in inputs: compiled(x, n)
"""
    done = rank(program(code), TPCAPTURE="standby")
    found = {key: list(record.shape) for key, record in records(done.run_dir).items()}
    assert found == {("early", 2, 0): [5, 8]} | {
        ("late", step, 1): [n, 2] for step, n in ((1, 4), (2, 5), (3, 7))
    }


def test_copies_and_tensors_as_rows_are_known_and_gradients_flow(rank: Launch) -> None:
    code = """
import copy, pickle
copied = copy.deepcopy(model)
copied.tap = pickle.loads(pickle.dumps(copied.tap))
copy.copy(copied.tap)
def loss(x, rows):
    copied.tap(x, rows=rows)
    h = copied.proj(x)
    copied.tap(h)
    return h.square().sum()
x = torch.randn(4, 8, requires_grad=True)
torch.compile(loss, backend="aot_eager", fullgraph=True)(x, torch.tensor(2)).backward()
expected = torch.autograd.grad(copied.proj(x).square().sum(), x)[0]
assert torch.allclose(x.grad, expected)
"""
    done = rank(program(code), TPCAPTURE="1")
    assert done.complaints == ""
    assert [(key, record.rows) for key, record in records(done.run_dir).items()] == [
        (("late", 0, 0), None),
        (("late", 0, 1), None),
    ]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("torch.__version__ = '2.9.1'", "[tpcapture] torch 2.9.1: taps in regions of torch.compile break their graph; "
         "expected torch 2.10 or later\\n"),
        ("del torch.compiler.substitute_in_graph", "[tpcapture] torch.compile does not learn of taps: "),
    ],
    ids=["old", "other"],
)  # fmt: skip
def test_a_torch_that_cannot_be_told_is_said_once(rank: Launch, spoil: str, said: str) -> None:
    code = f"""
import tpcapture, torch
{spoil}
tap = tpcapture.tap("x")
@torch.compile(backend="eager")
def double(x):
    tap(x)
    return 2 * x
for n in (1, 2): assert double(torch.ones(n)).sum() == 2 * n
"""
    done = rank(code, TPCAPTURE="1")
    assert done.complaints.startswith(said.replace("\\n", "\n"))
    assert done.complaints.count("[tpcapture]") == 1
    assert len(records(done.run_dir)) == 2


def test_importing_tpcapture_imports_nothing_of_torch(rank: Launch) -> None:
    done = rank(
        "import sys, tpcapture; assert 'torch' not in sys.modules\n"
        "import torch; tpcapture.tap('x'); assert 'torch._dynamo' not in sys.modules"
    )
    assert done.complaints == ""
