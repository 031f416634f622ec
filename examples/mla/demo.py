"""The demo behind ``make demo``: a sharding fault, captured and named.

Runs the model of this folder three times with capture on (one rank; two ranks; two ranks with a faulty loader),
compares the runs, and checks that the answers are what they have to be. Needs tpcapture, torch and safetensors
installed in the Python that runs it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
TPCAPTURE = Path(sysconfig.get_path("scripts")) / "tpcapture"

# run name -> number of ranks and how the loader cuts kv_b_proj
RUNS = {
    "tp1": (1, "heads"),
    "tp2": (2, "heads"),
    "tp2-faulty": (2, "rows"),
}
# The first capture point downstream of the misread weights.
FAULTY_TAP = "layers.0.self_attn.kv_b_proj.out"
# How much of each command's answer the demo prints.
SHOWN_LINES = 14


def write_checkpoint(out: Path) -> Path:
    """The full checkpoint that all runs load."""
    path = out / "checkpoint.safetensors"
    subprocess.run([sys.executable, HERE / "checkpoint.py", path], check=True)
    return path


def infer(checkpoint: Path, out: Path, run: str) -> None:
    """Run the model under torchrun, capturing every tap into ``out/run``."""
    ranks, kv_b_split = RUNS[run]
    env = {name: value for name, value in os.environ.items() if not name.startswith("TPCAPTURE")} | {
        "TPCAPTURE": "1",
        "TPCAPTURE_DIR": str(out),
        "TPCAPTURE_RUN": run,
        "OMP_NUM_THREADS": "1",
        # As --local-addr below: otherwise this machine's host name is looked up, which need not resolve.
        "GLOO_SOCKET_IFNAME": "lo",
    }
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    script = [HERE / "run.py", checkpoint, "--kv-b-split", kv_b_split]
    subprocess.run([sys.executable, *launcher, f"--nproc-per-node={ranks}", *script], env=env, check=True)


def tpcapture(*args: str | Path) -> "subprocess.CompletedProcess[str]":
    """The ``tpcapture`` command of this Python's environment."""
    return subprocess.run([TPCAPTURE, *args], stdout=subprocess.PIPE, text=True, check=False)


def show(*args: str | Path, status: int, says: str = "") -> bool:
    """Run the command as a user would; whether its exit status and words are the expected ones."""
    print("\n$ tpcapture", *args, flush=True)
    done = tpcapture(*args)
    lines = done.stdout.splitlines()
    print(*lines[:SHOWN_LINES], sep="\n")
    if len(lines) > SHOWN_LINES:
        print(f"... and {len(lines) - SHOWN_LINES} more lines")
    print(f"-> exit status {done.returncode}")
    right = done.returncode == status and says in done.stdout
    if not right:
        print(f"   expected {status}" + (f" and the words {says!r}" if says else ""))
    return right


def fresh(out: Path) -> None:
    """An empty `out`. Only what an earlier demo left there is removed; anything else is an error."""
    ours = {"checkpoint.safetensors", *RUNS}
    strangers = [path.name for path in out.iterdir() if path.name not in ours] if out.exists() else []
    if strangers:
        raise SystemExit(f"demo: {out} holds {strangers[0]!r}, which no demo left there: use another --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="where the runs go (out/demo)")
    out: Path = parser.parse_args().out
    fresh(out)
    try:
        right = tell(out)
    except subprocess.CalledProcessError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    if not right:
        print("demo: something was not as expected, see above", file=sys.stderr)
    return 0 if right else 1


def tell(out: Path) -> bool:
    """The whole story; whether all of it came out as it has to."""
    print(
        "A small DeepSeek-V2-style model (multi-head latent attention), run three times with every tap on:\n"
        "  tp1         one rank: the reference\n"
        "  tp2         two ranks\n"
        "  tp2-faulty  two ranks, the loader cuts kv_b_proj across its [K of all heads ; V of all heads]",
        flush=True,
    )
    checkpoint = write_checkpoint(out)
    # All at once: most of their time goes into importing torch.
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda run: infer(checkpoint, out, run), RUNS))

    print("\nWhat a run holds.", end="")
    right = show("ls", out / "tp1", status=0)
    print("\nOne rank against two: the same but for rounding, as sums are taken in another order.", end="")
    right &= show("compare", out / "tp1", out / "tp2", status=0)
    print("\nOne rank against the faulty two: the first tap that differs is the misread weight's.", end="")
    right &= show("compare", out / "tp1", out / "tp2-faulty", status=1, says=f"first at {FAULTY_TAP}")

    print(f"\nThe runs are in {out}. To go on:\n")
    command = min(str(TPCAPTURE), os.path.relpath(TPCAPTURE), key=len)
    print(f"  {command} show {out / 'tp2-faulty'} {FAULTY_TAP}")
    return right


if __name__ == "__main__":
    sys.exit(main())
