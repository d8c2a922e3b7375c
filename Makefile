# The commands documented in README.  Everything is installed into .venv, only from infra/locks and with its hashes.

# Install tools in parallel with each other.
MAKEFLAGS += --jobs=3

PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export LC_ALL := C.UTF-8
# The user's PYTHONWARNINGS and the like are not meant for these commands; with PYTHONDONTWRITEBYTECODE hundreds of test
# processes would each compile the toolkit.
unexport $(filter PYTHON%,$(.VARIABLES))

# $(call install,PYTHON,FLAGS): uv takes half a minute where pip takes minutes, and clones of this repository share its
# files.  If uv fails, use pip, which reads the user's configuration of mirrors and proxies.
# --no-build-isolation: build source packages with the lock's setuptools rather than one fetched without a hash.
UV := .venv/uv/bin/uv
LOCKED := --require-hashes --no-deps --no-build-isolation
install = $(UV) pip install --quiet --no-config --python $(1) $(LOCKED) $(2) 2>.venv/uv.log \
	|| $(1) -m pip install -qq --use-pep517 $(LOCKED) $(2)

.PHONY: acceptance demo test test-all test-rest check everything lock audit clean

demo: .venv/.installed
	@$(BIN)/python -m launch.ec2 --nodes 2 --rehearse --config infra/jobs/demo.yaml

PYTEST = @$(BIN)/python -m pytest

# Tests, lint, types and import rules.  Ends with a list of what it leaves to test-all.
test: .venv/.installed-for-tests .venv/.bytecode .venv/parliament
	$(PYTEST) -n auto

test-all: everything
	$(PYTEST) -n auto --all

# What `make test` leaves out.
test-rest: everything
	$(PYTEST) -n auto --rest

# Acceptance tests on a real AWS account; require ACCEPTANCE=aws and spend at most 3 USD: tests/live/README.md.
acceptance: .venv/.installed-for-tests
	@$(BIN)/python -m tests.live

# Lint, types, import rules, complexity, shell scripts, Dockerfile, template and policies; part of test-all.
check: .venv/.installed-for-tests .venv/checkov .venv/parliament
	$(PYTEST) -q --all tests/test_checks.py tests/launch/privilege/test_parliament.py tests/launch/privilege/test_supplied.py

# Installs all Python packages and tools that the tests need.
everything: .venv/.installed-for-all-tests .venv/.bytecode .venv/checkov .venv/parliament \
	.venv/sagemaker-pytorch-inference .venv/twine .venv/pip-audit .venv/ministack

# Run this after changing pyproject.toml or constraints.txt.  A lock is valid for every system and Python version, as it
# has the hashes of all files of a version on PyPI.  pip is left out, as every environment has one.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-package pip --custom-compile-command 'make lock'
lock: .venv/.installed
	for extra in rehearse test test-all notebook; do \
		$(COMPILE) -c constraints.txt --extra $$extra -o infra/locks/$$extra.txt pyproject.toml || exit; \
	done
	for tool in checkov==3.3.30 ministack==1.5.33 'parliament==1.6.4 setuptools==80.9.0' pip-audit==2.10.1 \
		sagemaker-pytorch-inference==2.0.25 twine==7.0.0 uv==0.13.9; do \
		echo $$tool | tr ' ' '\n' | $(COMPILE) -o infra/locks/$${tool%%=*}.txt - || exit; \
	done
	echo simplejpeg pytorch_optimizer nvidia-ml-py mpi4py obstore | tr ' ' '\n' | \
		$(COMPILE) -c constraints.txt --no-deps -o infra/locks/sagemaker.txt -
	echo boto3 numpy pillow pydantic pyyaml simplejpeg | tr ' ' '\n' | \
		$(COMPILE) -c constraints.txt -o infra/locks/publish.txt -
	echo argcomplete boto3 pathspec pydantic pyyaml rich | tr ' ' '\n' | \
		$(COMPILE) -c constraints.txt -o infra/locks/launcher.txt -
	for tracker in 'tensorboard tensorboard' 'wandb wandb' 'mlflow mlflow-skinny sqlalchemy alembic' \
		'mlflow-server sagemaker-mlflow==0.5.0 mlflow-skinny sqlalchemy alembic'; do \
		echo $${tracker#* } | tr ' ' '\n' | \
			$(COMPILE) -c constraints.txt -o infra/locks/tracker-$${tracker%% *}.txt - || exit; \
	done
	$(BIN)/python infra/container/sbom.py infra/locks/rehearse.txt >infra/sbom.cdx.json

# Looks up PyPI's advisories for every version in constraints.txt and the locks.  Part of test-all, but not of check,
# which needs no network once installed.  pip-audit accepts one version per package, hence several files.
audit: .venv/pip-audit
	@rm -f .venv/audit-*.txt; sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' constraints.txt infra/locks/*.txt | \
		tr 'A-Z_' 'a-z-' | sort -u | awk -F== '{ print > (".venv/audit-" ++seen[$$1] ".txt") }'
	@code=0; for pins in .venv/audit-*.txt; do \
		.venv/pip-audit/bin/python -m pip_audit -r $$pins --no-deps --disable-pip --progress-spinner off || code=$$?; \
	done >.venv/audit.txt 2>&1; \
	if grep -qE 'could not be audited|ServiceError|ConnectionError|requests\.exceptions' .venv/audit.txt; then \
		echo "error: cannot get PyPI's advisories for every package (.venv/audit.txt); connect to PyPI, and run this again."; exit 6; \
	fi; cat .venv/audit.txt; exit $$code

# Keeps runs/ and data/, which hold the user's files.
clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find trainer launch tests -name __pycache__ -exec rm -rf {} +

.venv/.installed: pyproject.toml infra/locks/rehearse.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: this needs Python 3.11 or newer: name one, as in make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "error: this Python cannot create virtual environments: sudo apt-get install python3-venv" >&2; exit 2; }
	@echo "Installing PyTorch and this toolkit into .venv: once, 5.4 GB on disk, about a minute."
	@$(PYTHON) -m venv .venv
	@$(PYTHON) -m venv --clear .venv/uv
	@.venv/uv/bin/python -m pip install -qq --require-hashes --no-deps --only-binary :all: -r infra/locks/uv.txt
	@$(call install,$(BIN)/python,-r infra/locks/rehearse.txt)
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@touch $@

.venv/.installed-for-tests: .venv/.installed infra/locks/test.txt
	@echo "Installing the tests' packages: once, 1.2 GB on disk."
	@$(call install,$(BIN)/python,--only-binary :all: -r infra/locks/test.txt)
	@touch $@

# Compiles the tests and what they import; otherwise every test worker would do so at the same time.
.venv/.bytecode: .venv/.installed-for-tests
	@$(BIN)/python -m pytest -p no:cacheprovider --collect-only -q >/dev/null 2>&1 || true # the tests report errors
	@touch $@

.venv/.installed-for-all-tests: .venv/.installed-for-tests infra/locks/test-all.txt
	@$(PYTHON) -c 'import os, sys, sysconfig; \
		sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' && command -v gcc >/dev/null || \
		{ echo "error: AWS's container toolkit is built here: sudo apt-get install gcc libc6-dev python3-dev" >&2; exit 2; }
	@echo "Compiling and installing AWS's container toolkit: once."
	@$(call install,$(BIN)/python,-r infra/locks/test-all.txt)
	@touch $@

# Tools that need separate venvs: checkov pins a boto3 of 2024, twine a newer docutils than awscli allows, and ministack,
# the second AWS emulator, its botocore; pip-audit must not be among the packages it audits.
.venv/checkov .venv/ministack .venv/parliament .venv/pip-audit .venv/twine: .venv/%: infra/locks/%.txt | .venv/.installed
	@echo "Installing $* into a separate venv."
	@$(PYTHON) -m venv --clear $@
	@$(call install,$@/bin/python,--only-binary :all: -r $<) || { rm -rf $@; exit 1; }
	@touch $@

# What SageMaker's endpoints have installed: a folder that tests append to Python's path.
.venv/sagemaker-pytorch-inference: infra/locks/sagemaker-pytorch-inference.txt | .venv/.installed
	@echo "Installing AWS's inference toolkit into a separate folder."
	@$(call install,$(BIN)/python,--target $@ -r $<) || { rm -rf $@; exit 1; }
	@touch $@
