# Everything goes through one virtual environment; its stamp is newer than the files that define it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --no-compile

# TorchRec stands beside the project only where it is measured against: it pins what the project does not. SimGrid stands
# there too, where it is asked for; its package is C++ and wants cmake, a compiler and Boost's headers (Debian's
# libboost-dev).
BENCH := .venv-benchmarks
BENCH_STAMP := $(BENCH)/.installed
SIMGRID_STAMP := $(BENCH)/.simgrid
HAS_BOOST := echo '\#include <boost/version.hpp>' | c++ -E -x c++ - >/dev/null 2>&1 && command -v cmake >/dev/null
BENCH_PIP := -m pip install --quiet --constraint benchmarks/constraints.txt
# TorchRec and SimGrid come without what they ask for: TorchRec wants fbgemm's build for CUDA.
BENCH_NEEDS := "torch==2.13.0" --editable ".[dev,torchrec]" matplotlib setuptools wheel pybind11

# Commands beside the tests, which wait for processes a part of the time.
beside = { $(1); } & others=$$!; $(BIN)/python -m tests $(2); tests=$$?; wait $$others && exit $$tests

TYPES := $(BIN)/python -m tests.type_check
QUICK := --hypothesis-profile quick -m "not real and not emulated and not browser and not whole and not slow"
DOCS := $(BIN)/python -m sphinx --quiet --fresh-env --nitpicky --fail-on-warning --builder html docs build/docs

# Bytecode is kept also where the environment says not to: without it, torch alone takes 5 s to load.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check check-fast coverage docs resolve torchrec benchmarks scale mutations format clean

run: $(STAMP)
	@echo "How long does a training step of MLPerf's recommender (DLRM-DCNv2) take on a host of 8 H100?"
	@$(BIN)/twinstep predict mlperf_dcnv2
	@echo "How far off are predictions of 44 published step times?"
	@$(BIN)/twinstep report published tests/data/published/steps.csv
	@echo "Next, for a recommender of your own: . $(VENV)/bin/activate; twinstep init --help   (twinstep docs tutorial)"

test: $(STAMP)
	$(BIN)/python -m tests

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(call beside,$(TYPES) && $(DOCS),--hypothesis-profile check -m "not slow")

# The site, in build/docs/index.html. A broken link, anchor or reference is an error.
docs: $(STAMP)
	$(DOCS)

# What a change is tried on while it is made: no processes, namespaces or browsers, nothing that computes for long, and a
# tenth of Hypothesis's examples.
check-fast: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(call beside,$(TYPES),$(QUICK))

# Which lines the tests of check-fast run, in one process: a report that never fails and is no part of CI, as a test may
# fail with slipcover's probes in the code. The files that are left out are compiled by numba, which refuses probes.
coverage: $(STAMP)
	$(PIP) "slipcover==1.1.0"
	-$(BIN)/python -m slipcover --source twinstep,sim,real,scenarios,reports --skip-covered \
	    --omit $$(grep -rl "^from scenarios.compiled import" scenarios sim | sed "s|^|*/|" | paste -sd,) \
	    -m pytest -W ignore::pytest.PytestAssertRewriteWarning -p no:cacheprovider $(QUICK)

# Pins that exclude each other fail here, in CI, not in a user's `make torchrec`. `constraints.txt` needs no dry run:
# .venv is installed from it.
resolve: $(STAMP)
	$(BIN)/python $(BENCH_PIP) --dry-run $(BENCH_NEEDS)
	$(BIN)/python $(BENCH_PIP) --dry-run --no-deps torchrec

# Scripts of TorchRec against this project's own programs.
torchrec: $(BENCH_STAMP)
	$(BENCH)/bin/python -m pytest -m torchrec tests/sim
	$(BENCH)/bin/python -m benchmarks.script_calls

benchmarks: $(BENCH_STAMP) $(SIMGRID_STAMP)
	$(BENCH)/bin/python -m benchmarks.partition
	$(BENCH)/bin/python -m benchmarks.bucketize
	$(BENCH)/bin/python -m benchmarks.powersgd
	$(BENCH)/bin/python -m benchmarks.baselines.simgrid_flows --check

scale: $(BENCH_STAMP) $(SIMGRID_STAMP)
	$(BENCH)/bin/python -m benchmarks.scale --out scale

mutations: $(STAMP)
	$(BIN)/python -m tests.mutations

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(BENCH) runs

# --no-compile: pip compiles all files of all packages, one by one; a quarter of them is ever imported. Two pips install the
# pins beside each other, without looking at what they need; the third installs what is missing then, such as CUDA's
# libraries for PyPI's torch.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	grep == constraints.txt | split --number=r/2 - $(VENV)/pins-
	ls $(VENV)/pins-* | xargs -P 2 -n 1 $(PIP) --no-deps --requirement
	$(PIP) --constraint constraints.txt --editable ".[dev,docs]"
	touch $@

$(BENCH_STAMP): pyproject.toml constraints.txt benchmarks/constraints.txt
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python $(BENCH_PIP) $(BENCH_NEEDS)
	$(BENCH)/bin/python $(BENCH_PIP) --no-deps torchrec
	touch $@

$(SIMGRID_STAMP): $(BENCH_STAMP)
	$(HAS_BOOST) || { [ "$$(id -u)" = 0 ] && apt-get install -y -qq --no-install-recommends cmake g++ libboost-dev; } || true
	$(HAS_BOOST) || { echo "SimGrid is built from C++: install cmake, a C++ compiler and Boost's headers (Debian: libboost-dev)"; exit 1; }
	$(BENCH)/bin/python $(BENCH_PIP) --no-deps --no-build-isolation simgrid
	touch $@
