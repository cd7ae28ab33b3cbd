# SPDX-License-Identifier: Apache-2.0
# The front door.  CMake builds; this file knows the few commands worth remembering.
PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   ?= build/release
N       ?= 4
JOBS    ?= $(shell nproc)
SECONDS ?= 600
RANKS   ?=
PYTHON  ?= python3
SOURCE  ?= -
SITE    ?= build/site
HOSTS_TESTS = $(shell sed -n 's/^weft_test.\([a-z_]*\) .*HOSTS.*/\1/p' tests/*/CMakeLists.txt | paste -sd '|')

.PHONY: all help release dev demo check test test-all asan tsan ubsan conformance python-conformance bench bench-peers soak site install fmt fmt-check clean \
	setup-demo setup-test setup-dev

all: release ## build the library and the weft command in build/release

help: ## this list
	@sed -n 's/^\([a-z -]*\):.*## /\1: /p' Makefile | awk -F': ' '{ printf "  make %-16s %s\n", $$1, $$2 }'

release dev:
	@scripts/build $@ $(JOBS)

demo: setup-demo ## build what it needs, then let N=4 ranks train a small GPT, lose one of them, and go on
	@scripts/build release $(JOBS) weft_command demo gpt2
	@scripts/demo build/release $(N)

check: setup-test dev ## the quick tests of one build, under a minute: for the inner loop
	@tests/quick build/dev

test: setup-test dev ## build with warnings as errors and run every test (about 25 minutes on 2 cores)
	@scripts/build asan $(JOBS)
	@scripts/build tsan $(JOBS)
	@tests/run build/dev build/asan build/tsan

test-all: setup-dev dev ## `make test`, then larger models, the undefined-behaviour build, the other compiler, every case
	@scripts/build asan $(JOBS)
	@scripts/build tsan $(JOBS)
	@scripts/build ubsan $(JOBS)
	@scripts/build clang $(JOBS)
	@WEFT_TEST_MODELS=all tests/run build/dev build/asan build/tsan build/ubsan build/clang
	@WEFT_TEST_ALL=1 tests/run -t 'test_(coll_matrix|coll_large|fabric_stop|graph_random_grad|hosts_ops)' build/dev
	@for spread in even uneven; do \
		WEFT_TEST_BACKENDS=ucx WEFT_TEST_HOSTS=$$spread tests/run -t '/test_($(HOSTS_TESTS))$$' build/dev || exit 1; done
	@build/dev/tests/math_sweep -s 1023
	@tests/test-readme
	@tests/test-package build/dev wheel bookworm trixie

soak: dev ## random operations on random groups, 8 ranks, SECONDS=600
	SOAK_SECONDS=$(SECONDS) build/dev/tests/soak

asan tsan ubsan: setup-test ## build with that sanitizer and run its tests
	@scripts/build $@ $(JOBS)
	@tests/run build/$@

conformance: setup-test dev ## one line per test of the specifications; writes docs/conformance.md
	@scripts/conformance build/dev

python-conformance: ## PyTorch's own tests on the backend weft: SOURCE=its source tree, or - for those it installs
	@PYTHONPATH=build/dev/python OMP_NUM_THREADS=1 $(PYTHON) python/conformance/pool.py $(SOURCE) --check

bench: setup-demo release ## the benchmarks, beside their floors
	build/release/weft bench

bench-peers: release ## weft beside Open MPI, MPICH and Intel MPI, RANKS="2 4 8 16" where there are cores, under 9 minutes; plots in build/
	-@scripts/setup peers
	@scripts/bench-peers build/release/weft build $(RANKS)

site: release ## these pages as HTML with a search, in build/site; SITE=another folder
	@$(if $(shell command -v cmark-gfm),,$(error `make site` needs cmark-gfm: apt-get install cmark-gfm))
	@scripts/site "$(SITE)" build/release

install: release ## install to PREFIX (default /usr/local), below DESTDIR if given
	DESTDIR="$(DESTDIR)" cmake --install "$(BUILD)" --prefix "$(PREFIX)"

fmt: ## format all sources (clang-format 14)
	@scripts/check-format --fix

fmt-check: ## say which sources are not formatted
	@scripts/check-format

clean: ## remove build/
	rm -rf build

setup-demo setup-test setup-dev:
	@scripts/setup $(@:setup-%=%)
