# The everyday commands. `make demo` and `make test` set up what is missing first.
#
#   make setup      install what is missing (packages, .venv, the report's charts)
#   make build      the library and the program, build/release
#   make demo       convert MiniLM to Hedgehog attention and report on it, demo/minilm-hedgehog
#   make test       all tests: C++, Python, the cases beside the checkout where they are
#   make test-fast  the torch-free folders' tests only
#   make bench      speed and memory against softmax, build/bench.json
#   make asan fuzz  sanitizers; fuzzers of the parsers, FUZZ_SECONDS each
#   make format     clang-format and ruff
#   make clean      remove what was built; keeps what set-up brought
#
# JOBS sets the number of parallel compilers.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60

PYTHON := .venv/bin/python
RELEASE := build/release
CASES := ../shared/cases
# Checkouts in different folders share compiled files.
export CCACHE_SLOPPINESS := pch_defines,time_macros,include_file_mtime,include_file_ctime
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
# Python finds the package in the source tree and the library and program that were just built.
PYTHON_ENV := PYTHONPATH=$(CURDIR)/python HEDGEROW_LIBRARY=$(CURDIR)/$(RELEASE)/lib/libhedgerow.so \
              HEDGEROW_PROGRAM=$(CURDIR)/$(RELEASE)/bin/hedgerow
# Without this, long sequences in eager PyTorch mostly measure page faults.
BENCH_ENV := GLIBC_TUNABLES=glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184

.PHONY: setup build demo test test-cpp test-python test-cases test-fast bench asan fuzz format \
        check clean

setup:
	@tools/setup.sh

# Configures once; afterwards the build notices changed and new files by itself.
build/%/build.ninja: | setup
	cmake --preset $* -Wno-dev

build: setup $(RELEASE)/build.ninja
	@cmake --build $(RELEASE) -j $(JOBS)

demo: build
	@$(PYTHON) tools/prepare_text.py --out build/data
	@$(PYTHON_ENV) tools/demo.sh

test: test-cpp test-python test-cases

test-cpp: build
	ctest --test-dir $(RELEASE) --output-on-failure -j $(JOBS)

test-python: build
	$(PYTHON_ENV) $(PYTHON) -m pytest tests/python

test-cases: build
	@if [[ -e $(CASES)/check_python.py ]]; then \
	  $(PYTHON_ENV) $(PYTHON) $(CASES)/check_python.py $(CASES)/handed --existing; \
	else \
	  echo "no cases in $(CASES): skipped"; \
	fi

test-fast: setup build/kernels-only/build.ninja
	@cmake --build build/kernels-only -j $(JOBS)
	ctest --test-dir build/kernels-only --output-on-failure -j $(JOBS)

bench: build
	$(BENCH_ENV) $(PYTHON) bench/run.py $(RELEASE)/bin/hedgerow --out build/bench.json

asan: setup build/asan/build.ninja
	@cmake --build build/asan -j $(JOBS)
	ctest --test-dir build/asan --output-on-failure -j $(JOBS)

fuzz: setup build/fuzz/build.ninja
	@cmake --build build/fuzz -j $(JOBS)
	tools/fuzz.sh build/fuzz $(FUZZ_SECONDS)

# What CI refuses before it compiles anything.
check: setup
	$(PYTHON) tools/check_layers.py
	$(PYTHON) tools/check_sizes.py
	@# Versions of clang-format disagree with each other; the one of Debian 12 decides.
	@if clang-format --version | grep -q 'version 14\.'; then \
	  echo "clang-format"; git ls-files '*.h' '*.cc' | xargs clang-format --dry-run --Werror; \
	else \
	  echo "clang-format is not version 14: form not checked"; \
	fi
	$(PYTHON) -m ruff check python tests tools bench

format: setup
	git ls-files '*.h' '*.cc' | xargs clang-format -i
	$(PYTHON) -m ruff check --fix python tests tools bench
	$(PYTHON) -m ruff format python tests tools bench

clean:
	@[[ ! -d build ]] || find build -mindepth 1 -maxdepth 1 ! -name echarts ! -name data -exec rm -rf {} +
