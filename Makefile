# make demo: train on the shipped log, replay it, compare policies.   make test: lint, types, tests.
# PIP_ARGS goes to every pip install, for example PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu".

PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# pytest-xdist: two workers by default
WORKERS ?= 2

.PHONY: demo test lint types pytest quick clean

demo: $(VENV)/.demo
	$(BIN)/swarmx demo

test: lint types pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

pytest: $(VENV)/.dev
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup

# the tests that take seconds, for work in progress
quick: $(VENV)/.dev
	$(BIN)/pytest -n $(WORKERS) -m "not slow and not ray and not envoy and not engine and not fault"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install $(PIP_ARGS) --quiet --upgrade "pip>=25"

# torch first and by pip, pinned: a resolver that does not see it installed would fetch a CUDA build of gigabytes
$(VENV)/.torch: $(BIN)/python constraints.txt
	$(BIN)/pip install $(PIP_ARGS) --quiet torch==2.13.0
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install $(PIP_ARGS) --quiet -c constraints.txt -e ".[train]"
	touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install $(PIP_ARGS) --quiet -c constraints.txt -e ".[all,dev]"
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist *.egg-info out
