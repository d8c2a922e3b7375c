"""What the container gets: the same code in the same bytes, and nothing of the user's."""

import gzip
import hashlib
import io
import os
import shutil
import tarfile
from importlib.resources import files
from pathlib import Path

import pytest

from launch.aws import containers
from launch.sagemaker.bundle import make_bundle
from tests.conftest import ROOT

REQUIREMENTS = "simplejpeg==1.9.0\n"


def members(content: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        return tar.getmembers()


def text_of(content: bytes, name: str) -> str:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read().decode()


def test_when_a_file_was_touched_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_bundle(REQUIREMENTS)
    shutil.copytree(ROOT / "trainer", tmp_path / "trainer")
    for number, path in enumerate(sorted((tmp_path / "trainer").rglob("*"))):
        path.chmod(0o700)
        os.utime(path, (number, number))
    monkeypatch.setattr(
        containers, "files", lambda package: tmp_path / package if package == "trainer" else files(package)
    )
    assert make_bundle(REQUIREMENTS) == before
    with (tmp_path / "trainer/loop.py").open("a") as file:
        file.write("# another\n")
    assert make_bundle(REQUIREMENTS).digest != before.digest


def test_in_it_are_the_trainer_its_entry_and_its_requirements_alone() -> None:
    made = make_bundle(REQUIREMENTS)
    ours = {f"trainer/{path.relative_to(ROOT / 'trainer')}" for path in (ROOT / "trainer").rglob("*.py")}
    assert set(made.names) == ours | {"train.py", "requirements.txt"}
    assert [member.name for member in members(made.content)] == list(made.names)
    assert text_of(made.content, "trainer/loop.py") == (ROOT / "trainer/loop.py").read_text()


def test_nothing_of_the_working_directory_comes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_bundle(REQUIREMENTS)
    for name in (".git/config", "data/cifar.tar", ".env", "trainer/secret.py", "train.py", "requirements.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("the user's")
    monkeypatch.chdir(tmp_path)
    assert make_bundle(REQUIREMENTS) == before


def test_what_python_leaves_beside_the_trainer_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "trainer", tmp_path / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(
        containers, "files", lambda package: tmp_path / package if package == "trainer" else files(package)
    )
    before = make_bundle(REQUIREMENTS)
    for name in ("__pycache__/loop.cpython-311.pyc", "README.md", ".env", "datasets/cifar.tar", "notes.txt"):
        (tmp_path / "trainer" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "trainer" / name).write_text("x")
    assert make_bundle(REQUIREMENTS) == before


def test_the_digest_is_of_what_is_in_it_however_it_is_packed() -> None:
    made = make_bundle(REQUIREMENTS)
    assert made.digest == hashlib.sha256(gzip.decompress(made.content)).hexdigest()


def test_an_image_that_lacks_nothing_gets_no_requirements() -> None:
    made, other = make_bundle(""), make_bundle(REQUIREMENTS)
    assert "requirements.txt" not in made.names
    assert made.digest != other.digest
    assert text_of(other.content, "requirements.txt") == REQUIREMENTS
