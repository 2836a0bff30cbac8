# Everything a newcomer needs: `make run` serves, `make test` tests. Both prepare the environment themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install run demo test lint types layers proto proto-check proto-baseline check clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-16s%s\n", $$1, $$2 }'

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Lorebank needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[server,bench,dev]' -c constraints.txt
	@touch $@

install: $(STAMP) ## prepare the environment in .venv

run: $(STAMP) ## start the service on 127.0.0.1:50051
	@exec $(BIN)/lorebank serve

demo: $(STAMP) ## show what it does, on a service of its own in a temporary folder
	@$(BIN)/lorebank demo

test: $(STAMP) ## run all tests on real servers
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term-missing:skip-covered --cov-fail-under=90

lint: $(STAMP) ## style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP) ## static types
	$(BIN)/mypy

layers: $(STAMP) ## imports point downwards only
	$(BIN)/lint-imports

proto: $(STAMP) ## format the contract and write its Python stubs
	$(BIN)/buf format -w
	$(BIN)/python protos/generate.py

proto-check: $(STAMP) ## lint, format, compatibility and freshness of the contract
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking --against protos/baseline.binpb
	$(BIN)/python protos/generate.py --check

proto-baseline: $(STAMP) ## at a release only: what is compatible from now on
	$(BIN)/buf build --exclude-source-info -o protos/baseline.binpb

check: lint types layers proto-check test ## everything that must hold

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
