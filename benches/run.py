"""Runs the Python benches, each in a process of its own, and prints what each figure is and is allowed to be.

    python benches/run.py                      all of them, in a few minutes
    python benches/run.py on off --quick       some, just to see that they run
    python benches/run.py --write              and puts the figures into docs/performance.md

A target that is missed is said so and is no error: figures depend on the machine and on what else it does.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from figure import Figure, markdown

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs/performance.md"
BENCHES = ("off", "on", "strided", "peers", "sustained", "steps", "memory", "live", "compare")
FLOOR = (
    "cargo",
    "build",
    "--release",
    "--locked",
    "--package",
    "capture-benches",
    "--features",
    "extension-module",
)


def build_floor() -> str:
    """Builds the module `floor` and returns its path. In a target directory of its own: maturin configures PyO3 in
    another way, and each of the two would have the other rebuild it."""
    env = os.environ | {"PYO3_PYTHON": sys.executable}
    command = [
        *FLOOR,
        "--target-dir",
        str(HERE.parent / "target/floor"),
        "--message-format",
        "json-render-diagnostics",
    ]
    done = subprocess.run(command, cwd=HERE, env=env, stdout=subprocess.PIPE, text=True, check=True)
    artifacts = [json.loads(line) for line in done.stdout.splitlines() if '"compiler-artifact"' in line]
    return next(a["filenames"][0] for a in artifacts if a["target"]["name"] == "floor")


def figures_of(name: str, floor: str, quick: bool) -> list[Figure]:
    """The figures of one bench."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("TPCAPTURE")}
    env |= {"BENCH_FLOOR": floor, "TPCAPTURE_BUDGET": "100GiB", "TPCAPTURE_RANK": "0"}
    env |= {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / f"{name}.py"), *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [Figure(**{key: value for key, value in line.items() if key != "met"}) for line in lines]


def machine() -> str:
    """What the figures were measured on, in words that name no place."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
    shared = any("hypervisor" in line for line in Path("/proc/cpuinfo").read_text().splitlines())
    cores = f"{os.cpu_count()} cores of " + ("a virtual machine" if shared else "a machine of its own")
    release = ".".join(platform.release().split("-")[0].split(".")[:2])
    versions = f"Linux {release}, Python {platform.python_version()}"
    return f"{cores}, {cpu}, {versions}; {time.strftime('%Y-%m-%d')}, load {os.getloadavg()[0]:.1f}"


def written(page: str, name: str, lines: list[str]) -> str:
    """The page with the lines in the place of that bench."""
    start, end = f"<!-- bench {name} -->\n", f"<!-- end {name} -->"
    before, rest = page.split(start)
    _, after = rest.split(end)
    return before + start + "\n".join(lines) + "\n" + end + after


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ({', '.join(BENCHES)}); all if none")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds of small work, just to see that they run"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument(
        "--write", action="store_true", help=f"put the tables into {PAGE.relative_to(HERE.parent)}"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHES)
    if unknown:
        parser.error(f"expected names among {', '.join(BENCHES)}, found {', '.join(sorted(unknown))}")
    floor = build_floor()
    found: dict[str, list[Figure]] = {}
    for name in arguments.names or BENCHES:
        table = markdown(found.setdefault(name, figures_of(name, floor, arguments.quick)))
        print(f"\n{name}: {machine()}", *table, sep="\n", flush=True)
        if arguments.write:
            command = f"`benches/run.py {name}`, {machine()}"
            PAGE.write_text(written(PAGE.read_text(), name, [command, "", *table]))
    if arguments.json:
        figures = {name: [json.loads(f.as_json()) for f in figures] for name, figures in found.items()}
        arguments.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    missed = [figure for figures in found.values() for figure in figures if figure.met is False]
    targets = [figure for figures in found.values() for figure in figures if figure.met is not None]
    print(f"\n{len(targets) - len(missed)} of {len(targets)} targets met")


if __name__ == "__main__":
    main()
