# The commands that README promises.  Everything is installed into .venv, with the hashes of infra/locks: pip refuses a
# file that is not the one that was locked, and asks for nothing that is not in the lock.

PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of processes of the tests would each compile this toolkit anew.
unexport PYTHONDONTWRITEBYTECODE

# --no-build-isolation: what comes as source is built with the lock's setuptools.  pip would fetch another without a hash.
INSTALL := install -qq --require-hashes --no-deps --no-build-isolation --use-pep517

.PHONY: demo test check lock audit clean

demo: .venv/.installed
	@$(BIN)/python -m launch.ec2 --nodes 2 --rehearse --config infra/jobs/demo.yaml

# A worker more than cores: many tests wait for processes of their own.
test: check
	$(BIN)/pytest -n $$(($$($(PYTHON) -c 'import os; print(os.cpu_count())') + 1)) --dist worksteal

check: .venv/.installed-for-tests .venv/checkov
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/bandit -q -c pyproject.toml -r trainer launch infra 2>.venv/bandit.log || { cat .venv/bandit.log; exit 1; }
	$(BIN)/shellcheck infra/ec2/boot.sh infra/container/entry.sh .ci/run
	$(BIN)/hadolint Dockerfile
	$(BIN)/python -m launch.infra template > .venv/account.yaml
	$(BIN)/cfn-lint .venv/account.yaml
	.venv/checkov/bin/checkov --file .venv/account.yaml --framework cloudformation --quiet --compact --skip-download

# After a change of pyproject.toml or constraints.txt.  A lock is for every system and Python: it has the hashes of all
# files that PyPI has of a version.  Not pip's: whoever installs has one.
COMPILE = .venv/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-package pip --custom-compile-command 'make lock'
lock: .venv/uv
	for extra in rehearse test notebook; do \
		$(COMPILE) -c constraints.txt --extra $$extra -o infra/locks/$$extra.txt pyproject.toml || exit; \
	done
	for tool in checkov==3.3.30 pip-audit==2.10.1 uv==0.13.9; do \
		echo $$tool | $(COMPILE) -o infra/locks/$${tool%%=*}.txt - || exit; \
	done

# Asks PyPI's advisories about every pinned version; not a part of check, which needs no network once installed.
audit: .venv/pip-audit
	@.venv/pip-audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip --progress-spinner off \
		>.venv/audit.txt 2>&1; code=$$?; \
	if grep -qE 'could not be audited|ServiceError|ConnectionError' .venv/audit.txt; then \
		echo "error: PyPI's advisories cannot be had for every package (.venv/audit.txt); run this where PyPI is."; exit 6; \
	fi; cat .venv/audit.txt; exit $$code

# Keeps runs/ and data/: they are yours.
clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find trainer launch tests -name __pycache__ -exec rm -rf {} +

.venv/.installed: pyproject.toml infra/locks/rehearse.txt
	@echo "Installing PyTorch and this toolkit into .venv: once, 5.4 GB on disk, about two minutes."
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip $(INSTALL) -r infra/locks/rehearse.txt
	@$(BIN)/pip install -qq --no-deps --no-build-isolation -e .
	@touch $@

.venv/.installed-for-tests: .venv/.installed infra/locks/test.txt
	@echo "Installing what the tests need: once, 1.2 GB on disk, about a minute; takes gcc and Python.h."
	@$(BIN)/pip $(INSTALL) -r infra/locks/test.txt
	@touch $@

# In venvs of their own: checkov pins a boto3 of 2024, and ours knows today's SageMaker; what looks for damaged packages
# must not be among them; and uv makes the locks.
.venv/checkov: .venv/.installed-for-tests
.venv/checkov .venv/pip-audit .venv/uv: .venv/%: infra/locks/%.txt
	@echo "Installing $* into a venv of its own: once, about a minute."
	@$(PYTHON) -m venv --clear $@
	@$@/bin/pip $(INSTALL) --only-binary :all: -r $< || { rm -rf $@; exit 1; }
	@touch $@
