# make demo | test | test-long | bench | lint | sanitize | clean
#
# Each target makes the virtual environment it needs under .venv/ and keeps it: a second run is quick.
# Another interpreter: make PYTHON=python3.12 test    (after `make clean` if an environment exists already)

PYTHON ?= python3
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
unexport PYTHONPATH PYTHONHOME

JOBS := $(shell nproc 2>/dev/null || echo 2)
CORE := $(MAKE) --no-print-directory -C csrc -j$(JOBS)
DEMO := .venv/demo
TEST := .venv/test
# Whole files go to as many processes as there are CPUs, though not to more than memory is sure to hold.
PYTEST := -m pytest -n $(shell echo $$(($(JOBS) < 8 ? $(JOBS) : 8))) --dist loadfile
BENCH := .venv/bench
LINT := .venv/lint
BENCH_ARGS ?= --against all --save benchmarks/results/bench.json --chart benchmarks/results/bench.svg
SANITIZE := .venv/sanitize

# What an installation depends on. An editable one (test) needs renewing only when the requirements change.
RECIPE := pyproject.toml setup.py build_native.py MANIFEST.in
SOURCES := $(RECIPE) $(shell find graphdiff csrc -path csrc/build -prune -o -type f -not -name '*.so' -not -name '*.pyc' -print)

.PHONY: help demo test test-long bench lint sanitize clean check-tools
.DELETE_ON_ERROR:

help:
	@sed -n '1,4s/^# \{0,1\}//p' Makefile

demo: $(DEMO)/.stamp
	$(DEMO)/bin/python examples/demo.py

test: $(TEST)/.stamp
	$(TEST)/bin/python setup.py -q build_ext --inplace
	$(CORE) test VARIANT=extension OBJECTS="$$(sed 's|^|../|' build/native/core.txt | tr '\n' ' ')"
	$(TEST)/bin/python $(PYTEST) $(PYTEST_ARGS)

# The whole suite on every ISA of this CPU with the long tests, the sanitizers, emulated NEON. Takes hours, not minutes.
test-long: export GRAPHDIFF_LONG := 1
test-long: $(TEST)/.stamp
	$(TEST)/bin/python setup.py -q build_ext --inplace
	for target in test asan tsan valgrind planted cross; do $(CORE) $$target; done
	for isa in $$($(CORE) -s isas); do \
	    echo "== GRAPHDIFF_ISA=$$isa"; \
	    GRAPHDIFF_ISA=$$isa $(TEST)/bin/python $(PYTEST) $(PYTEST_ARGS); \
	done
	$(MAKE) --no-print-directory sanitize

# The whole suite with AddressSanitizer and UBSan in the extension. Python itself is not built with them, so their
# libraries go in first (libstdc++ too: exceptions of C++ extensions pass through AddressSanitizer's own handler),
# and leaks are looked for in the C programs only (make -C csrc asan). The package is installed, not editable, so
# that the sources' own library stays as it is; PYTHONSAFEPATH keeps `python -m` from finding the sources instead.
# Errors end the program by an option of the run: of -fno-sanitize-recover, gcc 12 at -O1 makes code that keeps one byte of a mask in
# memory and reads eight (places of extremes were wrong). Only lines of the sources are kept, or moves take five times as long to compile.
# --capture=sys, or else pytest would hold the report back when a sanitizer ends the process in the middle of a test.
SANITIZE_CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined
sanitize: $(SANITIZE)/.stamp
	cc=$$($(PYTHON) tools/check_build.py --print-compiler); preload=; \
	for library in libasan.so libubsan.so libstdc++.so.6; do \
	    file=$$($$cc -print-file-name=$$library); \
	    if [ "$$file" != "$$library" ]; then preload="$$preload $$file"; fi; \
	done; \
	LD_PRELOAD="$${preload# }" PYTHONSAFEPATH=1 PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	$(SANITIZE)/bin/python $(PYTEST) --capture=sys $(PYTEST_ARGS)

bench: $(BENCH)/.stamp
	$(BENCH)/bin/python -m graphdiff bench $(BENCH_ARGS)

lint: $(LINT)/.stamp
	$(LINT)/bin/ruff check .
	$(LINT)/bin/mypy
	$(CORE) warnings

clean:
	rm -rf .venv build dist csrc/build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
	find graphdiff -name '_native*.so' -delete

check-tools:
	@command -v $(firstword $(PYTHON)) >/dev/null \
	    || { echo "graphdiff: needs Python 3.11 or newer; '$(PYTHON)' is not on PATH. Name one: make PYTHON=python3.12 demo" >&2; exit 1; }
	@$(PYTHON) tools/check_build.py

%/.python: | check-tools
	rm -rf $* && $(PYTHON) -m venv $*
	touch $@

# build/lib* goes first: it may hold modules that are gone by now, and would be packed again.
$(DEMO)/.stamp: $(SOURCES) | $(DEMO)/.python
	rm -rf build/lib* && $(DEMO)/bin/pip install -q '.[demo]'
	touch $@

$(TEST)/.stamp: $(RECIPE) | $(TEST)/.python
	$(TEST)/bin/pip install -q -e '.[test]' 'setuptools>=77'
	touch $@

$(BENCH)/.stamp: $(SOURCES) | $(BENCH)/.python
	rm -rf build/lib* && $(BENCH)/bin/pip install -q '.[bench]'
	touch $@

$(LINT)/.stamp: pyproject.toml | $(LINT)/.python
	$(LINT)/bin/pip install -q 'ruff>=0.6' 'mypy>=1.11' 'numpy>=2.0' pytest
	touch $@

$(SANITIZE)/.stamp: $(SOURCES) | $(SANITIZE)/.python
	rm -rf build/lib* && GRAPHDIFF_CFLAGS='$(SANITIZE_CFLAGS)' $(SANITIZE)/bin/pip install -q '.[test]'
	touch $@
