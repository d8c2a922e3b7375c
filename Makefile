# The commands that README promises.  Everything is installed into .venv, as pinned in constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test check clean

demo: .venv/.installed
	@$(BIN)/python -m launch.ec2 --nodes 2 --rehearse --config infra/jobs/demo.yaml

# A worker more than cores: many tests wait for processes of their own.
test: check
	$(BIN)/pytest -n $$(($$($(PYTHON) -c 'import os; print(os.cpu_count())') + 1)) --dist worksteal

check: .venv/.installed-for-tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Keeps runs/ and data/: they are yours.
clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find trainer launch tests -name __pycache__ -exec rm -rf {} +

.venv/.installed: pyproject.toml constraints.txt
	@echo "Installing PyTorch and this toolkit into .venv: once, 5.4 GB on disk, about two minutes."
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq -c constraints.txt -e '.[rehearse]'
	@touch $@

.venv/.installed-for-tests: .venv/.installed
	@echo "Installing what the tests need: once, 1.2 GB on disk, about a minute; takes gcc and Python.h."
	@$(BIN)/pip install -qq -c constraints.txt -e '.[test]'
	@touch $@
