# Two commands do all the set-up: `make run` and `make test`. Both make and use .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp

# Python 3.11 looks for the markers in a traceback by parsing its lines. A traceback that is logged while the test
# tools parse something (a finaliser's, say) breaks that parse: so none has markers here.
check pytest: export PYTHONNODEBUGRANGES := 1

# Tests share two cores well; more workers than that only fight over the databases.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help run test pytest check lint simulate bench bench-runs format clean

help: ## show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP)-run: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(STAMP)-dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(STAMP)-run

run: $(STAMP)-run ## install and start the server on 127.0.0.1:8283
	exec $(BIN)/holdfast server

lint: $(STAMP)-dev ## format check, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## lint and the fast tests
	$(BIN)/pytest -m 'not slow' -n $(WORKERS)

# Types take one core for a minute; the tests begin meanwhile.
test: $(STAMP)-dev ## everything that must hold before a change lands
	$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: $(STAMP)-dev
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

simulate: $(STAMP)-dev ## play seeded scenarios against the engine: SEEDS=10000, or SEED=123 again
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),2000))

bench: $(STAMP)-dev ## print the figures beside their budgets and the floor
	$(BIN)/python -m bench

bench-runs: $(STAMP)-dev ## time lists of a million runs, on SQLite and PostgreSQL
	$(BIN)/python -m bench --only runs --json bench/results/runs-sqlite.json
	$(BIN)/python -m bench --only runs --postgres --json bench/results/runs-postgres.json

format: $(STAMP)-dev ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
