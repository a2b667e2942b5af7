# make demo: set-up, then the causal-mask study on real text to its verdicts.  make test: set-up, then every check.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTED := $(VENV)/.tested

.PHONY: demo test lint gpu-check clean

demo: $(READY)
	$(BIN)/knockout run ablations/causal-mask.yaml

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

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

$(TESTED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(READY) $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache dist build
