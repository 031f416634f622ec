"""Breaks the device path in one way after the other and has the tests find out: `make mutants`.

Each claim of the path has its mutant, and each has to be caught every time. The tree is copied; nothing
here is touched.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = Path("crates/capture-cuda/src")
CORE = Path("crates/capture-core/src")
TIMES = 3


@dataclass(frozen=True)
class Mutant:
    """What is broken, where, and the test that has to fail; none: those within the crate."""

    name: str
    file: Path
    old: str
    new: str
    test: str


MUTANTS = [
    Mutant("no wait on the event behind the packing", SOURCES / "copier.rs",
           "ready.hold(context, stream).and_then(|()| gpu.events.take(context))", "gpu.events.take(context)", "order"),
    Mutant("the room is read before the copy is done", SOURCES / "copier.rs",
           "copied.as_ref().unwrap_or(&ready).wait(&gpu.context)", "ready.wait(&gpu.context)", "full"),
    Mutant("the device's range is freed before it is copied", SOURCES / "copier.rs",
           "    let driver = context.driver;\n    // SAFETY: the range",
           "    gpu.queue.free();\n    let driver = context.driver;\n    // SAFETY: the range", "full"),
    Mutant("the host's range is freed while the copy runs", CORE / "engine/on_device.rs",
           "            Outcome::Filled => None,",
           "            Outcome::Filled => Some((String::new(), Reach::Record)),", "order"),
    Mutant("the context stays current", SOURCES / "context.rs",
           "            unsafe { (functions.context_pop)(&raw mut popped) };",
           "            let _: *mut cudarc::driver::sys::CUcontext = &raw mut popped;", "guest"),
    Mutant("the context is not made current", SOURCES / "context.rs",
           "unsafe { (functions.context_push)(self.raw) }",
           "unsafe { (functions.context_push)(self.raw); (functions.context_pop)(&mut std::ptr::null_mut()) }",
           "guest"),
    Mutant("the thread's capture mode stays relaxed", SOURCES / "context.rs",
           "            unsafe { (functions.capture_mode)(&raw mut mode) };\n        }",
           "            let _ = &raw mut mode;\n        }", "guest"),
    Mutant("calls are made in the thread's own capture mode", SOURCES / "context.rs",
           "const RELAXED: c_uint = 2;", "const RELAXED: c_uint = 0;", "guest"),
    Mutant("a stream that is being captured is given work", SOURCES / "lane.rs",
           "(code == 0 && capturing != 0)", "false", "guest"),
    Mutant("packing on another stream", SOURCES / "lane.rs",
           "(context.driver.functions.copy)(to, from, *n_bytes, self.stream)",
           "(context.driver.functions.copy)(to, from, *n_bytes, 2 as CUstream)", "order"),
    Mutant("packing by a kernel on another stream", SOURCES / "lane.rs",
           "launch(context, *which, *blocks, self.stream, arguments)",
           "launch(context, *which, *blocks, 2 as CUstream, arguments)", "random"),
    Mutant("pinned memory is let go of while a copy may run", CORE / "engine/on_device.rs",
           "        if is_haunted {", "        if false {", "failing"),
    Mutant("a device that failed is asked again", CORE / "engine/on_device.rs",
           "self.devices.failed.lock().get(&name)", 'self.devices.failed.lock().get("")', "failing"),
    Mutant("a block too few", SOURCES / "plan.rs",
           "let blocks = partial::blocks(n_bytes) as u32;",
           "let blocks = (partial::blocks(n_bytes) as u32 - 1).max(1);", "digest"),
    Mutant("units that do not divide an address", SOURCES / "plan.rs",
           "(items.first as usize | strides | run_bytes | 16)", "(strides | run_bytes | 16)", ""),
]  # fmt: skip


def main() -> int:
    tree, target = ROOT / "target/mutants/tree", ROOT / "target/mutants/target"
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    env = os.environ | {"CARGO_TARGET_DIR": str(target)}
    survivors = 0
    for mutant in MUTANTS:
        path = tree / mutant.file
        text = path.read_text()
        if mutant.old not in text:
            print(f"stale     {mutant.name}: {mutant.file} has no {mutant.old!r}")
            survivors += 1
            continue
        path.write_text(text.replace(mutant.old, mutant.new, 1))
        command = ["cargo", "test", "--locked", "-q", "-p", "capture-cuda"]
        command += ["--test", mutant.test] if mutant.test else ["--lib"]
        build = subprocess.run(
            [*command, "--no-run"], cwd=tree, env=env, capture_output=True, text=True, check=False
        )
        if build.returncode:
            print(f"no build  {mutant.name}\n{build.stderr}")
            survivors += 1
        else:
            runs = [
                subprocess.run(command, cwd=tree, env=env, capture_output=True, check=False)
                for _ in range(TIMES)
            ]
            caught = sum(run.returncode != 0 for run in runs)
            print(
                f"{'caught  ' if caught == TIMES else 'SURVIVED'}  {mutant.name} ({caught} of {TIMES})",
                flush=True,
            )
            survivors += caught != TIMES
        path.write_text(text)
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main())
