# Everything a developer runs, and all that CI runs. `make help` lists it.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
RUN     := $(BIN)/python
SETUP   := $(PYTHON) tools/setup_environment.py
SPARK_OLDEST := build/spark-oldest
TORCH   := build/torch
BENCH_TRAINING := build/bench-training
BENCH_FORMATS := build/bench-formats
SECONDS ?= 600
RECORD  ?= --record
JOBS    ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)

.DEFAULT_GOAL := help
.PHONY: help setup build test test-browser test-model test-arm test-all check lint types contracts protos scans workflows interop spark torch faults simulate seeds searches mutants testing-page sanitize fuzz soak bench bench-spark bench-training demo demo-files docs changelog wheel clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

setup: ## Create .venv with everything that development needs
	@$(SETUP) --group test --group check --group demo --extra sql --extra spark --extra postgres

build: setup ## Compile the native kernels in place
	@$(RUN) native/build.py

test: build ## Run the tests (some minutes)
	$(RUN) -m pytest -q -n $(JOBS) --dist worksteal -m "not slow"

test-browser: build ## Run the tests of the page that `lancelet view` serves, in headless Chromium
	@$(PYTHON) tools/provide.py browser
	$(RUN) -m pytest -q tests/browser

test-model: build ## Check the model of commits with Spin, and that the code does what it allows
	@$(PYTHON) tools/provide.py model
	$(RUN) -m pytest -q tests/model

test-arm: build ## Cross-compile the native kernels for aarch64 and run their tests by emulation
	@$(PYTHON) tools/provide.py arm
	$(RUN) tools/test_arm.py

test-all: build ## Run every test, the long ones and a short fuzz included
	$(RUN) -m pytest -q -n $(JOBS) --dist worksteal
	$(MAKE) test-browser
	$(MAKE) test-model
	$(MAKE) test-arm
	$(MAKE) fuzz RECORD=

check: setup lint types contracts protos scans workflows ## Run every static check

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

protos: setup
	$(RUN) tools/generate_protos.py --check

scans: setup
	$(RUN) tools/generate_scan_methods.py --check

workflows: setup
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

interop: build ## Compare with the reference implementation only
	$(RUN) -m pytest -q -n $(JOBS) tests/interop

spark: build ## Run the Spark tests: classic and Connect, on both ends of the supported releases
	@LANCELET_VENV=$(SPARK_OLDEST) $(SETUP) --group test --group spark-oldest
	@for python in $(RUN) $(SPARK_OLDEST)/bin/python; do \
	  $$python -m pytest -q tests/unit/spark tests/faults/test_stream_sink_crashes.py || exit 1; \
	  for mode in classic connect; do \
	    LANCELET_SPARK_MODE=$$mode $$python -m pytest -q tests/spark || exit 1; \
	  done; \
	done

torch: build ## Run the tests that need PyTorch and JAX, in an environment of their own
	@LANCELET_VENV=$(TORCH) $(SETUP) --group test --group torch
	$(TORCH)/bin/python -m pytest -q tests/pytorch

faults: build ## Refuse and lose every storage request
	$(RUN) -m pytest -q -n $(JOBS) tests/faults

simulate: build ## Run simulated histories of many writers for SECONDS, and record them
	$(RUN) -m tests.kit.simulation --seconds $(SECONDS)
	$(RUN) tools/write_testing_page.py

searches: build ## Search the interleavings of small scenarios, and record the counts
	$(RUN) -m tests.kit.simulation.searches
	$(RUN) tools/write_testing_page.py

mutants: build ## Plant one-line faults for SECONDS, and record which of them the tests find
	$(RUN) tools/mutants.py --seconds $(SECONDS)
	$(RUN) tools/write_testing_page.py

seeds: build ## Find a seed that detects each reintroduced defect
	$(RUN) -m tests.kit.simulation --find-seeds

sanitize: setup ## Run the kernel tests under AddressSanitizer and UBSan
	$(RUN) native/build.py --sanitize

fuzz: build ## Fuzz the readers for SECONDS in total, and record the counts
	@$(SETUP) --group fuzz
	$(RUN) fuzz/run.py --seconds $(SECONDS) $(RECORD)
	$(RUN) tools/write_testing_page.py

soak: build ## Work on tables by many processes that are killed and paused for SECONDS, and record it
	$(RUN) tests/soak/soak.py --seconds $(SECONDS) $(RECORD)
	$(RUN) tools/write_testing_page.py

bench: build ## Compare speed and size with the reference and with Parquet
	@LANCELET_VENV=$(BENCH_FORMATS) $(SETUP) --group bench-formats
	$(BENCH_FORMATS)/bin/python benchmarks/bench_formats.py
	$(RUN) benchmarks/bench_files.py
	$(RUN) benchmarks/bench_reads.py
	$(RUN) benchmarks/bench_writes.py
	$(RUN) benchmarks/bench_tables.py
	$(RUN) benchmarks/bench_mutation.py
	$(RUN) benchmarks/bench_indices.py
	$(RUN) benchmarks/bench_text.py
	$(RUN) benchmarks/bench_vectors.py --rows 500000
	$(RUN) benchmarks/bench_vectors.py --rows 200000 --dims 768
	$(RUN) benchmarks/bench_verify.py
	$(RUN) benchmarks/bench_io.py
	$(RUN) benchmarks/bench_kernels.py
	$(RUN) benchmarks/report.py

bench-spark: build ## Compare Spark on Lance with Spark on Parquet
	$(RUN) benchmarks/bench_spark.py
	$(RUN) benchmarks/bench_spark_planning.py
	$(RUN) benchmarks/report.py

bench-training: build ## Compare loading for training with other loaders
	@LANCELET_VENV=$(BENCH_TRAINING) $(SETUP) --group bench-training
	@for rows in features vectors images tokens decoded; do \
	  $(BENCH_TRAINING)/bin/python benchmarks/bench_training.py --only $$rows || exit 1; \
	done
	$(RUN) benchmarks/report.py

demo: build ## The main job: Spark writes, streams, embeds, merges, compacts and searches tables
	$(RUN) demo/pipeline.py --folder demo-output

demo-files: build ## A tour of data files: write, read, compare sizes, find damage
	$(RUN) demo/files.py --folder demo-output

testing-page: setup ## Write the tables of docs/how_it_is_tested.md from the records
	$(RUN) tools/write_testing_page.py

docs: setup ## Build the documentation into site/
	@$(SETUP) --group docs
	$(BIN)/mkdocs build --strict

changelog: ## Write CHANGELOG.md from the fragments in changes/
	$(PYTHON) tools/build_changelog.py

wheel: ## Try what a user installs: a wheel with kernels, and one where nothing compiles
	$(PYTHON) tools/try_install.py

clean: ## Remove everything that was built
	rm -rf $(VENV) .jdk build dist site demo-output src/lancelet/kernels/_native*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
