# Every target works alone on a fresh machine with Python 3.11-3.13 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_DOCS := $(VENV)/.installed-docs
OLDEST := .venv-oldest

.PHONY: run test test-system test-quick test-oldest check docs install install-dev install-oldest clean

run: install  ## the default federation: pydocs, 5 clients in one process; then each alone
	$(BIN)/dance-flwr demo

PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest --dist loadgroup --no-loadscope-reorder

test: install-dev  ## what runs in one process; three at a time, as files are waited for
	$(PYTEST) -n 3 -m "not system"

test-system: install-dev  ## engines, deployments, browsers, notebooks, a wheel
	$(PYTEST) -n 3 -m system

test-quick: install-dev  ## what needs no engine, no browser and no real graph
	$(PYTEST) -n 2 -m quick tests

test-oldest: BIN := $(OLDEST)/bin
test-oldest: install-oldest  ## the same with the oldest versions that pyproject.toml allows
	$(PYTEST) -n 2 -m quick tests

check: install-dev  ## formatting, lint, types, sizes and directions of imports
	$(BIN)/python tests/support/budget.py
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
	.ci/install $(VENV) '.[dev]' ./rivals ./studies
	touch $@

install-oldest: $(OLDEST)/.installed

$(OLDEST)/.installed: pyproject.toml constraints.lock
	$(PYTHON) -m venv $(OLDEST)
	RESOLUTION=lowest .ci/install $(OLDEST) '.[simulation]' ./rivals ./studies
	touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	.ci/install $(VENV) '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) site
