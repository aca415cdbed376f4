# make run       train the digits example on two local workers
# make test      run the quick tests, and a few of each other kind
# make test-all  run every test; the slowest fifty are listed in build/slowest.txt
# make check     lint, types, layers
# make docs      build the documentation in build/site
# make pictures  make the pictures of the documentation again, from real runs
# make bench     measure the figures that Weft claims, beside the recorded ones
# make pages     build the web pages of the jobs service
# make proto     compile the .proto of the server's gRPC service into the Python modules beside it
# Each sets up what it needs: a virtual environment in .venv, and system packages where it may.

PYTHON ?= python3
BIN := .venv/bin
# A test needs half a core, and waits for the rest of its time: twice as many at once as there are cores.
JOBS ?= 4
# loadgroup: tests that share a fixture which takes seconds to make run in one process.
PYTEST := $(BIN)/pytest -n $(JOBS) --dist loadgroup --slowest=build/slowest.txt
QUICK := smoke or not (cluster or slurm or mpi or checks or clients or long)
# Without compiled files beside them, every worker that a test starts would compile our modules again.
export PYTHONDONTWRITEBYTECODE :=
# Some virtual machines advertise AMX and refuse its instructions: a product in bfloat16 would end with SIGILL there.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_FP16

# There are more tests at once than cores: threads of OpenMP that wait for each other must not spin.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: run test test-all system check format pages proto docs pictures bench clean

run: .venv/.ready-run
	$(BIN)/weft run -n 2 examples/digits.py

# Packages of Python and of the system come from different places, and mostly wait.
test:
	$(MAKE) -j 2 .venv/.ready-test system
	$(PYTEST) -m '$(QUICK)'

test-all: .venv/.ready-dev pages
	sh tools/setup.sh system
	sh tools/setup.sh browser
	rm -f .pytest_cache/v/cache/lastfailed
	$(PYTEST) || $(BIN)/python tools/retry_failed.py

system:
	sh tools/setup.sh system

check: .venv/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pages: src/weft/console/pages/index.html

proto: .venv/.ready-dev
	$(BIN)/python tools/proto.py

docs: .venv/.ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "the pages are in build/site"

pictures: .venv/.ready-dev pages
	sh tools/setup.sh system
	sh tools/setup.sh browser
	$(BIN)/python tools/pictures.py

# What a machine without an accelerator can measure; each prints its table of claims at the end.
bench: .venv/.ready-bench
	sh tools/setup.sh system
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/collectives.py
	$(BIN)/python benchmarks/recovery.py --systems weft
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/checkpoint.py
	$(BIN)/python benchmarks/learn.py --tasks dense,white,sparse,ridge,lasso,svm,tree8,tree16,boosting,forest
	$(BIN)/python benchmarks/export.py
	$(BIN)/python benchmarks/serve.py

clean:
	rm -rf .venv build src/weft/console/pages src/weft/console/web/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

WEB := $(shell find src/weft/console/web -name node_modules -prune -o -type f -print)
src/weft/console/pages/index.html: $(WEB) hatch_build.py
	$(PYTHON) hatch_build.py

.venv/.ready-run: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) sh tools/setup.sh venv '.[examples]'
	touch $@

.venv/.ready-test: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) sh tools/setup.sh venv '.[test]'
	touch $@ .venv/.ready-run

.venv/.ready-dev: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) sh tools/setup.sh venv '.[dev]'
	touch $@ .venv/.ready-test .venv/.ready-run

.venv/.ready-docs: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) sh tools/setup.sh venv '.[docs]'
	touch $@

.venv/.ready-bench: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) sh tools/setup.sh venv '.[dev,bench]'
	touch $@ .venv/.ready-dev .venv/.ready-test .venv/.ready-run
