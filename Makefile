# `make demo` shows the library, `make test` checks it; `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo examples test full thorough chosen laws mutants pairs aot models browser lint format bench install

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# An environment of its own: JAX would look for the TPU and the GPU whose compilers are installed.
AOT ?= .venv-aot
# Another one: packages of models want many packages of their own.
MODELS ?= .venv-models
# Test processes. Compilation by XLA has threads of its own, so more workers than cores only fight.
JOBS ?= 2
# A file is run by one worker. In their own order: doctests, which are short, come last and let both end at once; ordered by
# the number of their tests, as xdist would, files of few long tests come last.
BY_FILE := --dist loadfile --no-loadscope-reorder
# Laws: how much is drawn, and from where; programs run once or twice, so that compiling them fast is what counts.
SEED ?= 0
SEEDS ?= 0 1
EXAMPLES ?= 10
PAIRS ?= 10000
QUICK := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true
# A Python to build the environment from, if not the first of these that will do. The system's comes first: distributions build
# theirs with profiles, and where one from source is in front of it the tests take a tenth longer (docs/design/tests.md).
PYTHON ?=
PYTHONS := /usr/bin/python3.11 python3.11 python3 python3.12 python3.13

# The checker's wrapper would otherwise ask a registry for a newer version at every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Types live shortly: with the collector's default of 16 MB for what is new, a tenth of the checker's time is collecting.
export NODE_OPTIONS ?= --max-semi-space-size=128
# Bytecode is kept, also where it is told not to be: tests start some forty processes, and each would compile our modules.
unexport PYTHONDONTWRITEBYTECODE

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)$$/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

demo: $(STAMP) ## install into .venv and run examples/quickstart.py
	@echo "==> examples/quickstart.py"
	@$(BIN)/python examples/quickstart.py

# Every script that runs by itself, a folder after the other; examples/pod.py asks the compilers for TPUs.
EXAMPLES_RUN := $(sort $(filter-out examples/pod.py,$(shell grep -l '^if __name__ ==' examples/*.py examples/*/*.py)))

examples: $(STAMP) $(AOT)/.installed ## run all examples, examples/pod.py with the compilers in .venv-aot: some 20 minutes
	@for script in $(EXAMPLES_RUN); do echo "==> $$script"; $(BIN)/python $$script; done
	@echo "==> tapestry train examples/train.toml"
	@$(BIN)/tapestry train examples/train.toml
	@echo "==> examples/lawful_package"
	@cd examples/lawful_package && $(abspath $(BIN))/python -m pytest -q
	@echo "==> examples/pod.py"
	@XLA_FLAGS= JAX_PLATFORMS=cpu $(AOT)/bin/python examples/pod.py

# Lint runs beside the tests, in the time in which they wait; what it finds is told behind them.
# Without the tests that run lines which enough others run (tests/quick).
test: $(STAMP) ## the tests and doctests, and lint beside them: in ten minutes
	@nice -n 19 $(MAKE) --no-print-directory lint > $(VENV)/lint.txt 2>&1 & linting=$$!; failed=0; \
	trap 'kill $$linting 2> /dev/null || true' EXIT; \
	echo "==> pytest -n $(JOBS)"; \
	$(BIN)/python -m pytest -q -n $(JOBS) $(BY_FILE) --quick || failed=$$?; \
	wait $$linting || failed=$$?; \
	cat $(VENV)/lint.txt; exit $$failed

full: lint ## lint, then all tests but those that repeat
	@echo "==> pytest -n $(JOBS)"
	@$(BIN)/python -m pytest -q -n $(JOBS) $(BY_FILE)

thorough: lint ## lint, then all tests, those that repeat for every aggregator and monoid too
	@echo "==> pytest -n $(JOBS) --thorough"
	@$(BIN)/python -m pytest -q -n $(JOBS) $(BY_FILE) --thorough

# Counting lines makes tests a little slower, seconds are those of this run.
RECORDS ?= .pytest_cache/records
chosen: $(STAMP) ## choose the tests of `make test` anew, by a run of all that writes down their seconds and lines
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[chosen]'
	@rm -rf $(RECORDS)
	@echo "==> pytest -n $(JOBS) -p tests.quick.recording"
	@TAPESTRY_RECORDS=$(RECORDS) $(BIN)/python -m pytest -q -n $(JOBS) $(BY_FILE) -p tests.quick.recording
	@$(BIN)/python -m tests.quick $(RECORDS)

laws: $(STAMP) ## all laws of all that is shipped; SEED=0 EXAMPLES=10
	@echo "==> tapestry laws laws.shipped:pieces"
	@XLA_FLAGS="$(QUICK)" $(BIN)/python -m laws laws laws.shipped:pieces --jobs $(JOBS) --seed $(SEED) --examples $(EXAMPLES)

mutants: $(STAMP) ## the mutants planted in the tests, and what sees them; SEEDS="0 1"
	@echo "==> python -m tests.laws.mistakes.planted"
	@XLA_FLAGS="$(QUICK)" $(BIN)/python -m tests.laws.mistakes.planted --seeds $(SEEDS)

pairs: $(STAMP) ## random plans of random programs against the programs; PAIRS=10000 SEED=0, goes on where it was
	@echo "==> python -m tests.pairs --seed $(SEED) --pairs $(PAIRS)"
	@$(BIN)/python -m tests.pairs --seed $(SEED) --pairs $(PAIRS) --jobs $(JOBS)

aot: $(AOT)/.installed ## the plans of the gallery on the compilers for TPU and CUDA, which are installed into .venv-aot
	@echo "==> pytest tests/aot"
	@XLA_FLAGS= JAX_PLATFORMS=cpu $(AOT)/bin/python -m pytest -q tests/aot

models: $(MODELS)/.installed ## models of other packages, which are installed into .venv-models, lifted and compared
	@echo "==> python -m benchmarks.lifted --write"
	@XLA_FLAGS="$(QUICK)" JAX_PLATFORMS=cpu $(MODELS)/bin/python -m benchmarks.lifted --write
	@echo "==> pytest --thorough tests/benchmarks/test_lifted_models.py"
	@JAX_PLATFORMS=cpu $(MODELS)/bin/python -m pytest -q --thorough tests/benchmarks/test_lifted_models.py

browser: $(STAMP) ## pages of plans in a headless Chromium, which the system has or TAPESTRY_CHROMIUM names
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	@echo "==> pytest tests/tapestry_jax/report/page"
	@$(BIN)/python -m pytest -q tests/tapestry_jax/report/page

lint: $(STAMP) ## ruff, pyright and the import contracts
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "==> ruff check"
	@$(BIN)/ruff check .
	@echo "==> pyright"
	@$(BIN)/pyright
	@echo "==> lint-imports"
	@$(BIN)/lint-imports --no-cache

format: $(STAMP) ## rewrite the code in house format, with safe fixes
	@echo "==> ruff check --fix"
	@$(BIN)/ruff check --fix .
	@echo "==> ruff format"
	@$(BIN)/ruff format .

bench: $(STAMP) ## run the benchmarks side by side and print ratios
	@echo "==> python -m benchmarks"
	@$(BIN)/python -m benchmarks

install: $(STAMP) ## create or refresh .venv

# pip runs again only when what it reads has changed; an environment that is already there is kept.
$(STAMP): pyproject.toml constraints.txt
	@if [ ! -x $(BIN)/python ]; then \
	  chosen=""; \
	  for candidate in $(or $(PYTHON),$(PYTHONS)); do \
	    if "$$candidate" -c 'import ensurepip; $(NEW_ENOUGH)' >/dev/null 2>&1; then chosen="$$candidate"; break; fi; \
	  done; \
	  if [ -z "$$chosen" ]; then \
	    echo "error: no Python 3.11 or newer that makes environments among: $(or $(PYTHON),$(PYTHONS))" >&2; \
	    echo "  Install one (on Debian with its python3-venv), or name it: make PYTHON=/path/to/python3.11" >&2; \
	    exit 1; \
	  fi; \
	  echo "==> $$chosen -m venv $(VENV)"; \
	  "$$chosen" -m venv $(VENV); \
	fi
	@if ! $(BIN)/python -c '$(NEW_ENOUGH)'; then \
	  echo "error: $(VENV) holds $$($(BIN)/python --version), and this project needs 3.11 or newer" >&2; \
	  echo "  Remove $(VENV) and run make again." >&2; \
	  exit 1; \
	fi
	@echo "==> pip install -e .[dev,demo]  (the first time takes some minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,demo]'
	@touch $@

$(AOT)/.installed: $(STAMP)
	@echo "==> pip install -e .[aot,test] into $(AOT)  (the compilers take 1.2 GB)"
	@[ -x $(AOT)/bin/python ] || $(BIN)/python -m venv $(AOT)
	@$(AOT)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[aot,test]'
	@touch $@

$(MODELS)/.installed: $(STAMP) benchmarks/lifted/requirements.txt
	@echo "==> pip install -e .[test] -r benchmarks/lifted/requirements.txt into $(MODELS)"
	@[ -x $(MODELS)/bin/python ] || $(BIN)/python -m venv $(MODELS)
	@$(MODELS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]' -r benchmarks/lifted/requirements.txt
	@touch $@
