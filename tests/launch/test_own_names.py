"""Every launcher works, or says in one sentence how to call it, beside files of the user's that are named like ours."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, trainer_env

TRAP = "raise RuntimeError('run by the toolkit')"


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """A folder with a script, and with modules of the user's that a launcher must not import."""
    for name in ("trainer.py", "infra.py", "queue.py", "random.py"):
        (tmp_path / name).write_text(TRAP)
    (tmp_path / "utils").mkdir()
    (tmp_path / "train.py").write_text("from trainer import Trainer")
    return tmp_path


def launched(folder: Path, *words: str, path: str = str(ROOT)) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *words, "--script", "train.py", "--dry-run"]
    return subprocess.run(
        command, cwd=folder, env=trainer_env({"PYTHONPATH": path}), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("backend", ["local", "ec2", "sagemaker", "slurm"])
def test_a_plan_is_made_beside_modules_named_like_ours(backend: str, flat: Path) -> None:
    ended = launched(flat, "-m", f"launch.{backend}")

    assert "Traceback" not in ended.stderr
    assert "trainer.script" in ended.stdout + ended.stderr or "script " in ended.stdout


@pytest.mark.parametrize("name", ["launch.py", "launch/__init__.py"])
def test_beside_a_launch_of_the_users_it_is_called_with_another_flag(name: str, flat: Path) -> None:
    (flat / name).parent.mkdir(exist_ok=True)
    (flat / name).write_text(TRAP)

    ended = launched(flat, "-P", "-m", "launch.local")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert " -m trainer.script " in ended.stdout


@pytest.mark.parametrize("name", ["trainer.py", "infra/__init__.py"])
def test_a_path_that_hides_our_packages_is_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(TRAP)

    ended = launched(tmp_path, "-m", "launch.local", path=f"{tmp_path}:{ROOT}")

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: {tmp_path / name} on Python's path hides the toolkit's own ")
    assert ended.stderr.count("\n") == 1
