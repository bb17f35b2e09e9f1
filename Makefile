# Every target works alone on a fresh machine with Python 3.11-3.13 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: run test check install clean

run: install  ## the default federation: pydocs, 5 clients, Flower's simulation engine
	$(BIN)/dance-flwr run

test: install  ## every test, two at a time; one thread each, as two cores have no more to give
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup

check: install  ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED)

clean:
	rm -rf $(VENV)
