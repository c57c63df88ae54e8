# Two commands do all the set-up: `make run` and `make test`. Both make .venv if need be (scripts/venv.sh) and use it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Set if PYTHON was named on the command line or in the environment: then .venv must have that version.
CHOSEN := $(if $(filter command environment,$(origin PYTHON)),chosen)

# Python 3.11 looks for the markers in a traceback by parsing its lines. A traceback that is logged while the test
# tools parse something (a finaliser's, say) breaks that parse: so none has markers here.
check pytest: export PYTHONNODEBUGRANGES := 1

# Tests share two cores well; more workers than that only compete for the databases.
WORKERS ?= 2

.DEFAULT_GOAL := help

.PHONY: help venv-run venv-dev run test pytest check lint simulate fuzz soak chaos bench bench-runs bench-search format constraints audit clean

help: ## show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

venv-run venv-dev: venv-%:
	@sh scripts/venv.sh $* "$(PYTHON)" $(CHOSEN)

run: venv-run ## install and start the server on 127.0.0.1:8283
	exec $(BIN)/holdfast server

lint: venv-dev ## format check, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## lint and the fast tests
	$(BIN)/pytest -m 'not slow' -n $(WORKERS)

# Types take one core for a minute; the tests begin meanwhile.
test: venv-dev ## everything that must hold before a change lands
	$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: venv-dev
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

simulate: venv-dev ## play seeded scenarios against one server and several: SEEDS=10000, or SEED=123 again
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),2000))

fuzz: venv-dev ## try requests that a machine makes up: MINUTES=10, or SEED=123 again
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

soak: venv-dev ## watch a server under mixed load for growth: MINUTES=30
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),30)

chaos: venv-dev ## kill, pause and stop servers under mixed load, and look for damage: MINUTES=10
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

bench: venv-dev ## measure, and print the results beside their budgets
	$(BIN)/python -m bench

bench-runs: venv-dev ## time lists of a million runs, on SQLite and PostgreSQL
	$(BIN)/python -m bench --only runs --json bench/results/runs-sqlite.json
	$(BIN)/python -m bench --only runs --postgres --json bench/results/runs-postgres.json

bench-search: venv-dev ## time searches in 100,000 passages and a million messages, on SQLite and PostgreSQL
	$(BIN)/python -m bench --only search --only message-search --json bench/results/search-sqlite.json
	$(BIN)/python -m bench --only search --only message-search --postgres --json bench/results/search-postgres.json

format: venv-dev ## format the code, and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

constraints: ## write the newest allowed versions to constraints.txt, to be tested and committed
	@sh scripts/constraints.sh "$(PYTHON)"

audit: ## look for known vulnerabilities of the versions in constraints.txt; needs the network
	@sh scripts/audit.sh "$(PYTHON)"

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
