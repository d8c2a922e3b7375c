"""Lint, types, import rules, complexity, shell scripts, container and template: the checks, beside the other tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

BIN = Path(sys.executable).parent
CHECKOV = BIN.parent / "checkov/bin"  # in a venv of its own: see the Makefile
PACKAGES = ("trainer", "launch", "infra")
SCRIPTS = ("infra/ec2/boot.sh", "infra/container/entry.sh", "tests/anyhow.sh", ".ci/run")
COMPLEX = "C"  # radon's grade of the first that is too complex: 11

Words = tuple[str | Path, ...]


def script(name: str, *words: str) -> Words:
    """A program that is written in Python; its first line may not start it, as in a folder whose name has a space."""
    return (sys.executable, BIN / name, *words)


CHECKS: dict[str, Words] = {
    "types": (sys.executable, "-m", "mypy"),
    "style": (sys.executable, "-m", "ruff", "check", "--no-fix"),
    "format": (sys.executable, "-m", "ruff", "format", "--check"),
    "import rules": script("lint-imports", "--no-logo"),
    "shell scripts": (BIN / "shellcheck", *SCRIPTS),
    "Dockerfile": (BIN / "hadolint", "Dockerfile"),
}


def run_check(words: Words) -> str:
    """What a check prints.  Fails with it if the check does."""
    ended = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ended.returncode != 0:
        pytest.fail(f"{Path(words[0]).name} ended with {ended.returncode}\n{ended.stdout}", pytrace=False)
    return ended.stdout


@pytest.mark.timeout(300)  # mypy without its cache takes half a minute of a quiet core
@pytest.mark.parametrize("name", CHECKS)
def test_check(name: str) -> None:
    run_check(CHECKS[name])


def test_no_function_is_complex() -> None:
    found = run_check((sys.executable, "-m", "radon", "cc", "--show-complexity", "--min", COMPLEX, *PACKAGES))

    if found:
        pytest.fail(f"a cyclomatic complexity above 10:\n{found}", pytrace=False)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The template of the account's stack, and those beside it."""
    folder, files = tmp_path_factory.mktemp("templates"), []
    for more in ((), ("--queue",), ("--notify",)):
        files.append(folder / f"account{''.join(more)}.yaml")
        files[-1].write_text(run_check((sys.executable, "-m", "launch.infra", "template", *more)))
    return files


@pytest.mark.slow("cfn-lint finds nothing in the stacks' templates")
def test_the_templates_are_cloudformation(templates: list[Path]) -> None:
    run_check(script("cfn-lint", *map(str, templates)))


@pytest.mark.skipif(not CHECKOV.exists(), reason="needs checkov: make .venv/checkov")
@pytest.mark.slow("checkov finds nothing in the stacks' templates")
def test_the_templates_are_secure(templates: list[Path]) -> None:
    words = ("--file", *templates, "--framework", "cloudformation", "--quiet", "--compact", "--skip-download")

    run_check((CHECKOV / "python", CHECKOV / "checkov", *words))
