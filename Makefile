# `make` prints the targets. Python 3.11 and make are all a machine needs.
PYTHON ?= python3.11
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
RUN := .stamp/run
DEV := .stamp/dev
# The demonstration keeps its ledger in the clone; a real installation sets DISCREET_HOME to a folder it backs up.
export DISCREET_HOME ?= $(CURDIR)/.discreet

.PHONY: help run test lint bench proof clean
help: ## print the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(RUN) ## retrain on simulated discharges: validate, train privately, account, record, promote or block
	$(BIN)/discreet run configs/readmission.yaml

test: $(DEV) ## the tests (about 13 minutes on two cores)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not proof"

lint: $(DEV) ## ruff, pyright, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(DEV) ## speed, side by side in one run; writes $$DISCREET_HOME/bench.json
	$(BIN)/python -m tests.benchmarks

proof: $(DEV) ## the long proofs: races, kills, simulations, mutants
	$(BIN)/python -m pytest -m proof -s

clean: ## remove the environment and the demonstration's home
	rm -rf $(VENV) .stamp .discreet

$(VENV):
	$(PYTHON) -m venv $(VENV)

$(RUN): docker/requirements.lock pyproject.toml | $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q $(PIP_ARGS) --no-deps -r docker/requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	@mkdir -p .stamp && touch $@

$(DEV): docker/requirements-dev.lock $(RUN)
	$(BIN)/python -m pip install --disable-pip-version-check -q $(PIP_ARGS) --no-deps -r docker/requirements-dev.lock
	@touch $@
