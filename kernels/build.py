"""Builds the kernels' images with NVRTC, no host compiler and no GPU needed: `python kernels/build.py [--check]`.

They are committed, so that neither a build of tpcapture nor a server needs a toolkit. `--check` builds them
again and fails where a byte differs, or where a kernel spills or uses more registers than it may.
"""

import argparse
import ctypes
import re
import sys
from importlib.metadata import distribution
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "cu"
IMAGES = HERE / "images"
# CUDA 12.8 is the first that knows sm_120; a later one would write PTX that drivers of 12.8 do not read.
NVRTC = ("nvidia-cuda-nvrtc-cu12", "12.8.93")
CUBINS = ["sm_120", "sm_100", "sm_90", "sm_89", "sm_80"]
PTX = "compute_80"
# Registers of a thread: six blocks of 256 on a multiprocessor, four for the f64 sums of the statistics.
MOST_REGISTERS = {"pack": 40, "turn": 40, "hash": 40, "stats": 64}
# The same sums on every device, also where the driver compiles the PTX: nothing is fused but where the source says so.
ARITHMETIC = ["--fmad=false", "--ftz=false"]


class BuildError(Exception):
    """What the compiler said, or what a kernel is found to need."""


class Nvrtc:
    """The part of NVRTC's C interface that compiles one program."""

    def __init__(self) -> None:
        name, version = NVRTC
        package = distribution(name)
        if package.version != version:
            raise BuildError(f"expected {name} {version}, found {package.version}")
        files = package.files or []
        (library,) = [file for file in files if file.name == "libnvrtc.so.12"]
        self._library = ctypes.CDLL(str(package.locate_file(library)))

    def _call(self, function: str, *arguments: object) -> int:
        return int(getattr(self._library, function)(*arguments))

    def _must(self, function: str, *arguments: object) -> None:
        if code := self._call(function, *arguments):
            raise BuildError(f"{function}: error {code}")

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._must(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._must(f"nvrtcGet{what}", program, text)
        return text.raw

    def compile(self, architecture: str) -> tuple[bytes, str]:
        """The image for one architecture, and what the assembler said of its kernels."""
        headers = sorted(path for path in SOURCES.iterdir() if path.name != "kernels.cu")
        texts = (ctypes.c_char_p * len(headers))(*[path.read_bytes() for path in headers])
        names = (ctypes.c_char_p * len(headers))(*[path.name.encode() for path in headers])
        source = (SOURCES / "kernels.cu").read_bytes()
        program = ctypes.c_void_p()
        self._must(
            "nvrtcCreateProgram", ctypes.byref(program), source, b"kernels.cu", len(headers), texts, names
        )
        options = [f"--gpu-architecture={architecture}", "--std=c++17", *ARITHMETIC, "--ptxas-options=-v"]
        encoded = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        failed = self._call("nvrtcCompileProgram", program, len(options), encoded)
        log = self._text(program, "ProgramLog").rstrip(b"\0").decode()
        if failed:
            raise BuildError(f"{architecture}: {log}")
        image = self._text(program, "CUBIN" if architecture.startswith("sm_") else "PTX")
        self._call("nvrtcDestroyProgram", ctypes.byref(program))
        return image, log


def check_resources(architecture: str, log: str) -> None:
    """Fails where a kernel spills or takes more registers than its launch bounds are meant to leave it."""
    kernels = re.findall(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    names = re.findall(r'c"(tpc_\w+)"', (HERE / "src" / "kernel.rs").read_text())
    if sorted(kernel[0] for kernel in kernels) != sorted(names):
        raise BuildError(
            f"{architecture}: expected the {len(names)} kernels of src/kernel.rs, found {len(kernels)}"
        )
    for name, *numbers in kernels:
        stack, stores, loads, registers = map(int, numbers)
        most = MOST_REGISTERS[name.split("_")[1]]
        if stack or stores or loads:
            raise BuildError(f"{architecture}: {name} keeps {stack} bytes in local memory, expected none")
        if registers > most:
            raise BuildError(f"{architecture}: {name} takes {registers} registers, expected at most {most}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="build, compare with what is there, write nothing"
    )
    check = parser.parse_args().check
    try:
        nvrtc = Nvrtc()
        for architecture in [*CUBINS, PTX]:
            image, log = nvrtc.compile(architecture)
            is_cubin = architecture != PTX
            if is_cubin:
                check_resources(architecture, log)
            path = IMAGES / f"{architecture}.{'cubin' if is_cubin else 'ptx'}"
            if not check:
                path.write_bytes(image)
            elif not path.exists() or path.read_bytes() != image:
                raise BuildError(f"{path} is not what kernels/cu builds: run `make kernels`")
    except BuildError as error:
        print(f"kernels/build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
