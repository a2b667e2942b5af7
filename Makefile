# make demo: set-up, then the causal-mask study on real text to its verdicts.  make test: set-up, then every check.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTED := $(VENV)/.tested
REFERENCE := $(VENV)/reference

.PHONY: demo test lint gpu-check clean

demo: $(READY)
	$(BIN)/knockout run ablations/causal-mask.yaml

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal

lint: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

gpu-check: $(READY)
	$(BIN)/python -m knockout.training.gpu_check

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "knockout needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# What only one test is to see stands beside the rest: Lightning imports transformers, for 0.8 s, wherever it is installed.
$(TESTED): pyproject.toml Makefile | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	$(BIN)/python -m pip install --quiet --upgrade --target $(REFERENCE) 'transformers>=5.24,<6'
	touch $(READY) $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache dist build
