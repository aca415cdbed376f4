# make run    train the digits example on two local workers
# make test   run every test
# make check  lint, types, layers
# make proto  compile the .proto of the server's gRPC service into the Python modules beside it
# Each sets up what it needs: a virtual environment in .venv, and system packages where it may.

PYTHON ?= python3
BIN := .venv/bin
# Long tests wait for processes more than they compute, so more of them than there are cores.
JOBS ?= 4

.PHONY: run test check format proto bench clean

run: .venv/.ready-run
	$(BIN)/weft run -n 2 examples/digits.py

test: .venv/.ready-dev
	sh tools/setup.sh system
	$(BIN)/pytest -n $(JOBS) --dist worksteal

check: .venv/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: .venv/.ready-dev
	$(BIN)/python tools/proto.py

bench: .venv/.ready-dev
	sh tools/setup.sh system
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/rank_order.py
	$(BIN)/python benchmarks/collectives.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/.ready-run: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) sh tools/setup.sh venv '.[examples]'
	touch $@

.venv/.ready-dev: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) sh tools/setup.sh venv '.[dev]'
	touch $@ .venv/.ready-run
