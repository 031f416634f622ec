"""The HTML page: whole in itself, well-formed, with everything that comes from a run escaped, and, where a Chromium is
installed, seen and used in it.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, browser, executable
from conftest import clean_env, launch

import tpcapture

HOSTILE = "</script><img src=x onerror=alert(1)>"
RANKS = 4
LAYERS = 3

# The candidate's ranks hold slices of q; in layer 1 rank 2 has other rows, and one NaN at step 2. `ids` are integers.
CODE = f"""
import os, numpy as np
from tpcapture import capture, step
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rng = np.random.default_rng(7)
for s in range(2):
    step()
    capture("embed", rng.standard_normal((40, 96), dtype="float32"), placement="R")
    for layer in range({LAYERS}):
        q = rng.standard_normal((40, 96), dtype="float32")
        noise = rng.standard_normal((40, 96), dtype="float32") * 1e-7
        if world > 1:
            q += q * noise
            if layer == 1:
                q[:, 48:72] = q[::-1, 48:72]
                if s == 1:
                    q[3, 50] = np.nan
        width = 96 // world
        capture(f"layers.{{layer}}.q", q[:, rank * width : (rank + 1) * width], placement="S(1)")
        capture(f"layers.{{layer}}.sum", q if rank == 0 else 0 * np.nan_to_num(q), placement="P")
        ids = np.arange(9) + (world > 1 and layer == 2)
        capture(f"layers.{{layer}}.ids", ids, placement="R")
    capture({HOSTILE!r}, np.ones(4) * (1.1 if world > 1 else 1), placement="R")
    capture("shape", np.ones(4 + (world > 1)), placement="R")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, under a folder whose name is hostile, too."""
    folder = tmp_path_factory.mktemp("page") / "<b>a&b"
    for run, world in (("a", 1), ("b", RANKS)):
        for rank in range(world):
            env = {
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "TPCAPTURE": "1",
                "TPCAPTURE_MESH": f"tp={world}",
            }
            launch([sys.executable, "-c", CODE], folder / run, 120, True, env)
    # A file that cannot be read.
    (folder / "b" / "rank9.pid1-00000000.000000.safetensors").write_bytes(b"<i>torn")
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    """The page of both runs, as the command writes it."""
    path = folder / "report.html"
    command = [sys.executable, "-m", "tpcapture", "report", folder / "a", folder / "b", "-o", path]
    done = subprocess.run(command, env=clean_env(), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("DIFFERENT, first at layers.1.q, step 1, rank 2")
    assert done.stdout.endswith(f"{path}\n")
    return path


class Elements(HTMLParser):
    """Holds that elements are closed in order, and collects what there is."""

    EMPTY = frozenset({"meta", "input", "br", "link", "img", "wbr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element in line {self.getpos()[0]}"

    def handle_data(self, data: str) -> None:
        key = self.open[-1] if self.open else ""
        self.texts[key] = self.texts.get(key, "") + data


def test_the_page_is_well_formed_and_needs_nothing_else(page: Path) -> None:
    elements = Elements(page.read_text())
    assert elements.open == []
    assert {"img", "b", "i", "link"}.isdisjoint(tag for tag, _ in elements.tags)
    assert [attrs for _, attrs in elements.tags if "src" in attrs] == []
    assert {attrs["href"] for _, attrs in elements.tags if "href" in attrs} == {"#"}
    [policy] = [attrs["content"] for _, attrs in elements.tags if attrs.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert HOSTILE in elements.texts["pre"]


def test_its_rows_are_the_reports(page: Path, folder: Path) -> None:
    data = json.loads(re.search(r'id="data">(.*)</script>', page.read_text())[1])  # type: ignore[index]
    report = json.loads(tpcapture.compare(folder / "a", folder / "b").to_json())
    details = [row.pop("detail") for row in data["rows"]]
    assert data["rows"] == report["rows"]
    assert data["runs"] == [str(folder / "a"), str(folder / "b")]
    [error] = data["errors"]
    assert error == report["errors"][0]
    q = next(i for i, row in enumerate(report["rows"]) if row["tap"] == "layers.1.q")
    assert details[q]["map"]["shape"] == [40, 64]
    assert len(details[q]["map"]["cells"]) == 40 * 64
    assert [side["counts"][0] for side in details[q]["sides"]] == [40 * 96, 40 * 96]
    assert [rank["rank"] for rank in report["rows"][q]["by_rank"]] == list(range(RANKS))
    assert len(details[q]["worst"]) == 10
    # What the page shows is in the units of the report.
    shown = [
        (row, detail["worst"][0])
        for row, detail in zip(report["rows"], details, strict=True)
        if detail and detail["worst"]
    ]
    in_units = [
        (row, float(worst["error"]))
        for row, worst in shown
        if row["max_units"] is not None and not row["nan"]
    ]
    assert {row["tap"] for row, _ in in_units} >= {"layers.1.q", "layers.1.sum", "layers.0.q", HOSTILE}
    assert [error for _, error in in_units] == pytest.approx(
        [row["max_units"] for row, _ in in_units], rel=1e-5
    )


def test_python_writes_the_same_page(page: Path, folder: Path, tmp_path: Path) -> None:
    report = tpcapture.compare(folder / "a", folder / "b")
    report.save_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.read_text()


def test_a_page_that_cannot_be_written_is_said(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tpcapture", "report", folder / "a", "-o", tmp_path / "none" / "x.html"]
    done = subprocess.run(command, env=clean_env(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("tpcapture: cannot write the page: No such file or directory")


# In a browser


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = executable()
    if program is None:
        pytest.skip("no Chromium is installed (apt install chromium): the page is not looked at")
    profile = tmp_path_factory.mktemp("profile")
    with browser(program, profile) as window:
        yield window
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture
def opened(window: Browser, page: Path) -> Iterator[Browser]:
    """The page in a browser. Nothing may go wrong in it, and nothing else may be asked for."""
    window.view(1400, 900)
    window.problems.clear()
    window.requests.clear()
    window.open(page)
    yield window
    assert window.problems == []
    assert set(window.requests) == {page.as_uri()}


def text(window: Browser, selector: str) -> Any:
    return window.js(f"document.querySelector({selector!r})?.innerText")


def texts(window: Browser, selector: str) -> Any:
    return window.js(f"[...document.querySelectorAll({selector!r})].map((element) => element.innerText)")


def put(window: Browser, selector: str, value: str) -> None:
    """Gives a control a value, and says so as it does by itself."""
    window.js(
        f"(() => {{ const control = document.querySelector({selector!r}); control.value = {value!r};"
        " for (const type of ['input', 'change']) control.dispatchEvent(new Event(type)); })()"
    )


def focused(window: Browser) -> Any:
    return window.js("document.activeElement.getAttribute('aria-label')")


def test_names_of_runs_and_taps_stay_text(opened: Browser) -> None:
    assert opened.js("document.querySelectorAll('img, b, script').length") == 2  # the data and the script
    assert opened.js("document.title").count("<b>a&b") == 2
    names = texts(opened, "#map tbody th")
    assert HOSTILE in names
    opened.js(f"show(rows.find((row) => row.tap === {HOSTILE!r}), null, true)")
    assert text(opened, "#panel h2") == HOSTILE
    assert "<i>" not in text(opened, "#notes")
    assert "rank9.pid1-00000000.000000.safetensors" in text(opened, "#notes")


def test_layers_by_kinds_with_a_strip_for_each_rank(opened: Browser) -> None:
    assert texts(opened, "#map thead th") == ["layer of layers.*", "q", "sum", "ids"]
    assert texts(opened, "#map tbody th") == ["embed", "0", "1", "2", HOSTILE, "shape"]
    marks = opened.js("matrix.map((line) => line.map((cell) => cell?.innerText.trim() ?? ''))")
    assert marks[0] == ["=", "", ""]
    assert [line[0] for line in marks[1:]] == ["≈", "✕", "≈", "✕", "▦"]
    assert marks[3][2] == "✕"  # integers
    strips = opened.js("matrix[2][0].querySelector('i').style.background")
    assert len(re.findall(r"rgb\(", strips)) == 2 * RANKS  # where each begins and ends


def test_the_first_divergence_is_a_link_that_opens_it(opened: Browser) -> None:
    assert "layers.1.q, step 1, rank 2" in text(opened, "h1")
    opened.click("#first")
    assert text(opened, "#panel h2") == "layers.1.q"
    for heading in ("Errors by rank", "Error map, rounding units", "Worst elements", "Values", "Statistics"):
        assert heading in texts(opened, "#panel h3")
    facts = text(opened, "#panel .facts")
    assert "S(1), said at the tap" in facts
    assert "[40, 96]" in facts
    assert opened.js("document.querySelectorAll('#panel canvas').length") == 1
    assert text(opened, "#panel .where").startswith("DIFFERENT")
    rank = texts(opened, "#panel tbody th")
    assert "rank 2 ✕" in rank


def test_the_address_opens_a_row_again(opened: Browser) -> None:
    opened.click("#first")
    anchor = opened.js("location.hash")
    opened.press("Escape")
    assert opened.js("location.hash") == ""
    opened.js(f"location.hash = {anchor!r}")
    opened.settle()
    assert text(opened, "#panel h2") == "layers.1.q"


def test_keys_move_open_and_close(opened: Browser) -> None:
    opened.js("document.querySelector('#map td[tabindex=\"0\"]').focus()")
    assert focused(opened).startswith("layers.1.q, step 1: DIFFERENT, ")
    opened.press("ArrowRight")
    assert focused(opened).startswith("layers.1.sum, step 1: ")
    opened.press("ArrowDown")
    assert focused(opened).startswith("layers.2.sum, step 1: ")
    opened.press("End")
    assert focused(opened).startswith("layers.2.ids, step 1: DIFFERENT")
    opened.press("Home")
    opened.press("ArrowUp")
    opened.press("ArrowUp")
    opened.press("ArrowUp")
    assert focused(opened).startswith("embed, step 1: IDENTICAL")
    opened.press("ArrowUp")
    assert focused(opened).startswith("embed, step 1: IDENTICAL")
    opened.press("Enter")
    assert text(opened, "#panel h2") == "embed"
    assert focused(opened) == "close"
    opened.press("Escape")
    assert opened.js("document.querySelector('#panel').hidden")
    assert focused(opened).startswith("embed, step 1: IDENTICAL")
    outline = opened.js("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_markup_that_got_in_would_run_nothing(window: Browser, page: Path, tmp_path: Path) -> None:
    path = tmp_path / "markup.html"
    path.write_text(page.read_text().replace("<main>", f"<main>{HOSTILE}<script>alert(2)</script>"))
    window.view(1400, 900)
    window.problems.clear()
    window.open(path)
    assert not [problem for problem in window.problems if problem.startswith("dialog")]
    assert "Content Security Policy" in " ".join(window.problems)
    assert text(window, "#panel-title") is None
    window.click("#first")
    assert text(window, "#panel-title") == "layers.1.q"


def test_arrows_look_through_taps_while_one_is_open(opened: Browser) -> None:
    opened.click('#map td[aria-label^="layers.1.q"]')
    assert focused(opened).startswith("layers.1.q, step 1: ")
    opened.press("ArrowRight")
    assert text(opened, "#panel h2") == "layers.1.sum"
    assert focused(opened).startswith("layers.1.sum, step 1: ")
    opened.press("Escape")
    assert focused(opened).startswith("layers.1.sum, step 1: ")


def test_a_suggested_placement_is_copied(window: Browser, page: Path, tmp_path: Path) -> None:
    found = {"kind": "reordered", "text": f"the same rows in another order {HOSTILE}", "fit": [1.0]}
    found["suggest"] = "S(0, sections=[16,4,4])"
    first = '"diagnoses":[' + json.dumps(found).replace("<", "\\u003c")
    path = tmp_path / "suggest.html"
    with_finding = page.read_text().replace('"diagnoses":[]', first + "]")
    path.write_text(with_finding.replace('"diagnoses":[{', first + ",{"))
    window.view(1400, 900)
    window.open(path)
    window.click("#first")
    assert text(window, "#panel .finding p") == found["text"]
    assert text(window, "#panel .suggest code") == "S(0, sections=[16,4,4])"
    window.click("#panel .copy")
    window.settle()
    assert text(window, "#panel .copy") == "copied"


def test_filters_by_tap_verdict_and_step(opened: Browser) -> None:
    shown = "chosen().map((row) => [row.tap, row.step])"
    opened.js("document.querySelector('#tap').focus()")
    opened.type("*.q")
    assert opened.js(shown) == [["layers.0.q", 1], ["layers.1.q", 1], ["layers.2.q", 1]]
    opened.click('#verdicts input[value="ROUNDING"]')
    assert opened.js(shown) == [["layers.1.q", 1]]
    assert text(opened, "#status").startswith("1 row shown of ")
    put(opened, "#step", "all")
    assert opened.js(shown) == [["layers.1.q", 1], ["layers.1.q", 2]]
    put(opened, "#tap", "no such tap")
    assert text(opened, "#map") == "no row has this step, verdict and tap"


def test_taps_by_ranks_have_numbers(opened: Browser) -> None:
    opened.click('#views input[value="ranks"]')
    assert texts(opened, "#map thead th") == ["tap", "all", *(f"rank {rank}" for rank in range(RANKS))]
    line = "[...document.querySelectorAll('#map tbody tr')].find((line) => line.innerText.includes('layers.1.q'))"
    cells = opened.js(f"[...{line}.querySelectorAll('td')].map((cell) => cell.innerText)")
    assert [cell.startswith("✕") for cell in cells] == [False, False, False, True, False]
    assert all(float(cell.removeprefix("✕")) > 0 for cell in cells)


def test_nan_on_one_side_has_a_colour_of_its_own(opened: Browser) -> None:
    row = "rows.find((row) => row.tap === 'layers.1.q' && row.step === 2)"
    errors = [float(opened.js(f"String(errorOf({row}, {rank}))").lower()) for rank in range(RANKS)]
    assert [error > 1e30 for error in errors] == [False, False, True, False]
    assert opened.js("css(colour(Infinity))") not in opened.js("scale.map(css)")


CONTRAST = """(selector) => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = (text) => {
    const [r, g, b] = rgb(text).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(selector);
  let ground = element;
  while (rgb(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
  const [ink, paper] = [light(getComputedStyle(element).color), light(getComputedStyle(ground).backgroundColor)];
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}"""
"""WCAG's contrast ratio of an element's text."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(opened: Browser, scheme: str) -> None:
    opened.view(1400, 900, scheme)
    opened.click("#first")
    selectors = [
        "h1",
        "h1 .verdict",
        ".runs dt",
        "#legend",
        "#panel h2",
        "#panel dt",
        "#panel figcaption",
        "#status",
    ]
    selectors += [
        f'#verdicts [data-verdict="{verdict}"]'
        for verdict in ("DIFFERENT", "LAYOUT", "ROUNDING", "IDENTICAL")
    ]
    found = {selector: opened.js(f"({CONTRAST})({selector!r})") for selector in selectors}
    assert {selector: ratio for selector, ratio in found.items() if ratio < 4.5} == {}


def test_a_narrow_window_scrolls_only_downwards(opened: Browser) -> None:
    opened.view(390, 800)
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not opened.js(wide)
    opened.click("#first")
    assert not opened.js(wide)
    box = opened.js("document.querySelector('#panel').getBoundingClientRect().toJSON()")
    assert (box["x"], box["y"]) == (0, 0)
