"""The image for SM120, disassembled: what the compiler made of the kernels."""

import re
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest

KERNELS = Path(__file__).parent.parent / "kernels"


@pytest.fixture(scope="module")
def code() -> dict[str, str]:
    """Instructions by kernel."""
    package = distribution("nvidia-cuda-nvdisasm")
    (tool,) = [file for file in package.files or [] if file.name == "nvdisasm"]
    image = KERNELS / "images" / "sm_120.cubin"
    text = subprocess.run(
        [str(package.locate_file(tool)), "-c", str(image)], capture_output=True, text=True, check=True
    ).stdout
    sections = re.split(r"^\s*\.section\s+\.text\.(\w+)", text, flags=re.MULTILINE)[1:]
    return dict(zip(sections[::2], sections[1::2], strict=True))


def names() -> list[str]:
    rust = (KERNELS / "src" / "kernel.rs").read_text()
    return re.findall(r'c"(tpc_\w+)"', rust)


def test_all_kernels_are_there(code: dict[str, str]) -> None:
    assert len(names()) == 39
    assert sorted(code) == sorted(names())


@pytest.mark.parametrize("name", names())
def test_nothing_lies_in_local_memory(code: dict[str, str], name: str) -> None:
    assert re.findall(r"\b(?:LDL|STL)\b", code[name]) == []


@pytest.mark.parametrize("name", names())
def test_contiguous_bytes_are_read_sixteen_at_a_time(code: dict[str, str], name: str) -> None:
    if not name.startswith(("tpc_pack", "tpc_turn")) or name.startswith("tpc_pack_16"):
        assert re.search(r"\bLDG?\.E\.128", code[name]), name
    if name.startswith("tpc_pack_16"):
        assert re.search(r"\bSTG?\.E\.128", code[name]), name
