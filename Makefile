# Every target works alone on a fresh machine with Python 3.11-3.13 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_DOCS := $(VENV)/.installed-docs

.PHONY: run test test-quick check docs install install-dev clean

run: install  ## the default federation: pydocs, 5 clients, Flower's simulation engine; then each alone
	$(BIN)/dance-flwr demo

test: install-dev  ## every test, three at a time, as some wait for engines; one thread each
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder

test-quick: install-dev  ## what needs no engine, no browser and no real graph
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup --no-loadscope-reorder -m quick

check: install-dev  ## formatting, lint, types, sizes and directions of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q --no-header tests/test_architecture.py

docs: $(INSTALLED_DOCS)  ## the site of the documentation, in site/; open site/index.html
	RUN_NOTEBOOKS=1 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

install: $(INSTALLED)  ## what a run needs
install-dev: $(INSTALLED_DEV)  ## and what tests and checks need, in the same environment

$(INSTALLED): pyproject.toml constraints.lock
	$(PYTHON) -m venv $(VENV)
	.ci/install $(VENV) '.[simulation]'
	touch $@

$(INSTALLED_DEV): $(INSTALLED)
	.ci/install $(VENV) '.[dev]'
	touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	.ci/install $(VENV) '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) site
