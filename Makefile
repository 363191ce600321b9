# Everything a developer runs, and all that CI runs. `make help` lists it.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
RUN     := $(BIN)/python
SETUP   := $(PYTHON) tools/setup_environment.py
JOBS    ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)

.DEFAULT_GOAL := help
.PHONY: help setup build test test-all check lint types contracts protos interop faults sanitize fuzz bench demo docs clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

setup: ## Create .venv with everything that development needs
	@$(SETUP) --group test --group check --extra sql

build: setup ## Compile the native kernels in place
	@$(RUN) native/build.py

test: build ## Run the tests (some minutes)
	$(RUN) -m pytest -q -n $(JOBS) --dist worksteal -m "not slow"

test-all: build ## Run every test, the long ones and a short fuzz included
	$(RUN) -m pytest -q -n $(JOBS) --dist worksteal
	$(MAKE) fuzz

check: setup lint types contracts protos ## Run every static check

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

protos: setup
	$(RUN) tools/generate_protos.py --check

interop: build ## Compare with the reference implementation only
	$(RUN) -m pytest -q -n $(JOBS) tests/interop

faults: build ## Refuse and lose every storage request
	$(RUN) -m pytest -q -n $(JOBS) tests/faults

sanitize: setup ## Run the kernel tests under AddressSanitizer and UBSan
	$(RUN) native/build.py --sanitize

fuzz: build ## Fuzz the readers for a minute each
	@$(SETUP) --group fuzz
	$(RUN) -m benchmarks.none 2>/dev/null || true

bench: build ## Compare speed and size with the reference and with Parquet
	$(RUN) -m pytest -q benchmarks --benchmark-only

demo: build ## A tour that runs: write, change, read, inspect
	$(RUN) -m lancelet.demo

docs: setup ## Build the documentation into site/
	@$(SETUP) --group docs
	$(BIN)/mkdocs build --strict

clean: ## Remove everything that was built
	rm -rf $(VENV) .jdk build dist site src/lancelet/kernels/_native*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
