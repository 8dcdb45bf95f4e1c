# Stock Python 3.11-3.13 with venv, and make, are all that is needed. PYTHON=... picks an interpreter.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	if command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; \
	then command -v $$p; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
DEMO := problems/serve-70b.toml
# tests run on every core where pytest-xdist is installed
SPREAD = $(shell $(BIN)/python -c 'import xdist' 2>/dev/null && echo "-n auto --dist loadfile")

.PHONY: demo test test-all lint types bench docs test-pythons wheel-check clean

# a virtual environment with the package alone: enough to solve
$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 found; give one with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# what tests and checks need besides; read from the dev group of pyproject.toml
$(VENV)/.developed: $(VENV)/.installed
	$(BIN)/python tools/requirements.py dev > $(VENV)/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/dev.txt
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/tokenmill solve $(DEMO)

test: $(VENV)/.developed
	$(BIN)/python -m pytest -m "not slow" $(SPREAD)

test-all: $(VENV)/.developed
	$(BIN)/python -m pytest $(SPREAD)

lint: $(VENV)/.developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# as the Python that runs it: the annotations of what is installed are written for that one
types: $(VENV)/.developed
	$(BIN)/mypy --python-version $$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/run.py

# the manual as a static site in build/site; its guide runs its own commands
docs: $(VENV)/.developed
	$(BIN)/python tools/requirements.py docs > $(VENV)/docs.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/docs.txt
	$(BIN)/python -m tokenmill.docs build/manual
	$(BIN)/python -m mkdocs build --quiet --strict

test-pythons: $(VENV)/.installed
	bash tools/test_pythons.sh

wheel-check: $(VENV)/.developed
	bash tools/wheel_check.sh $(BIN)/python

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
