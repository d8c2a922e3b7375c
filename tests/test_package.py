"""The wheel and the source distribution: PyPI would take them, and the wheel's commands work outside the checkout."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.container import sbom
from tests.conftest import ROOT

TWINE = ROOT / ".venv" / "twine" / "bin" / "python"  # in a venv of its own: see the Makefile
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution of this checkout."""
    folder = tmp_path_factory.mktemp("package")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "trainer", "launch", "infra"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, checkout)
    for kind in ("build_wheel", "build_sdist"):
        subprocess.run([sys.executable, "-c", BUILD, kind, str(folder)], cwd=checkout, check=True, capture_output=True)
    return folder


def installed(built: Path) -> Path:
    """The wheel's content in a folder, as pip would put it into site-packages."""
    target = built / "installed"
    if not target.exists():
        with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
            wheel.extractall(target)
    return target


@pytest.mark.slow("PyPI would take the wheel and the source distribution")
@pytest.mark.skipif(not TWINE.exists(), reason="needs twine: make test-all")
def test_pypi_would_take_both(built: Path) -> None:
    files = [*built.glob("*.whl"), *built.glob("*.tar.gz")]
    words = [TWINE, "-m", "twine", "check", "--strict", *files]
    checked = subprocess.run(words, capture_output=True, text=True, check=False)

    assert len(files) == 2
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    "words",
    [["launch"], ["launch.ec2", "--nodes", "2", "--dry-run"], ["launch.infra", "template"]],
    ids=" ".join,
)
def test_the_wheels_commands_work_outside_the_checkout(words: list[str], built: Path, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env |= {"PYTHONPATH": str(installed(built)), "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    # -P: not from the folder it is started in.
    ended = subprocess.run(
        [sys.executable, "-P", "-m", *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )

    assert ended.returncode == (2 if words == ["launch"] else 0), ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout


def test_the_wheel_holds_what_the_launchers_read_and_no_tests(built: Path) -> None:
    folder = installed(built)

    read = {path.relative_to(ROOT) for name in ("infra", "launch", "trainer") for path in (ROOT / name).rglob("*.*")}
    kinds = (".py", ".yaml", ".sh", ".json", ".sbatch", ".j2")
    of_images = {Path("infra/container")}  # which are built from a checkout
    lacks = [path for path in read if path.suffix in kinds and not (folder / path).exists()]
    assert [path for path in lacks if path.parent not in of_images] == []
    assert not (folder / "tests").exists()


def test_the_wheel_holds_every_file_that_a_message_names(built: Path) -> None:
    """Guides, policies, locks: what a user is sent to is there without the checkout, too."""
    folder = installed(built)
    named = {
        name
        for file in (*(ROOT / "launch").rglob("*.py"), *(ROOT / "trainer").rglob("*.py"))
        for text in texts_in(file)
        for name in re.findall(r"(?<![\w/-])(?:infra|launch|trainer)/[\w./-]+\.(?:md|json|ya?ml|txt|py|sh)\b", text)
    }

    assert {"infra/account.md", "infra/data.md"} <= named
    of_images = {"infra/locks/notebook.txt"}  # which are built from a checkout
    assert {name for name in named if not (folder / name).exists()} == of_images


def texts_in(file: Path) -> Iterator[str]:
    """The texts of a module, and no docstrings."""
    for node in ast.walk(ast.parse(file.read_text())):
        for child in ast.iter_child_nodes(node) if not isinstance(node, ast.Expr) else ():
            if isinstance(child, ast.Constant) and isinstance(child.value, str):
                yield child.value


def test_the_wheel_has_the_list_of_the_software_that_it_brings(built: Path) -> None:
    """CycloneDX, of what the lock holds for it, which `make lock` writes anew."""
    text = (installed(built) / "infra/sbom.cdx.json").read_text()
    (metadata,) = installed(built).glob("*.dist-info/METADATA")
    listed = json.loads(text)
    locked = sbom.locked((ROOT / "infra/locks/rehearse.txt").read_text())
    needed = {canonicalize_name(Requirement(line).name) for line in wanted(metadata.read_text())}

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert listed == sbom.document(locked, version_in(metadata.read_text())), "make lock"
    assert {"torch", "pathspec"} <= needed <= {row["name"] for row in listed["components"]}
    assert all(row["externalReferences"][0]["hashes"] for row in listed["components"])


def wanted(metadata: str) -> list[str]:
    return re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE)


def version_in(metadata: str) -> str:
    (version,) = re.findall(r"^Version: (.+)$", metadata, re.MULTILINE)
    return str(version)
