"""Every launcher works, or says in one sentence how to call it, beside files of the user's that are named like ours."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from launch.core.shell import interpreter
from launch.slurm.script import step
from tests.conftest import ROOT, trainer_env
from tests.launch.slurm.jobs import EVERY_KIND, resolved

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
    env = trainer_env({"PYTHONPATH": path, "AWS_EC2_METADATA_DISABLED": "true"})
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


SLOW = pytest.mark.slow("every launcher works beside files of the user's that are named like ours")
OTHERS = [pytest.param(name, marks=SLOW) for name in ("local", "sagemaker", "slurm")]


@pytest.mark.parametrize("backend", ["ec2", *OTHERS])
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


def test_a_training_imports_none_of_them_either(flat: Path) -> None:
    """Python looks in the folder first where a job starts; a colleague may share it."""
    ended = subprocess.run(
        [*interpreter(sys.executable, flat), "-m", "trainer", "--help"],
        cwd=flat, env=trainer_env(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_of_job_on_slurm_is_started_so(kind: str) -> None:
    words = step(resolved(kind))
    python = next(place for place, word in enumerate(words) if re.fullmatch(r"(.*/)?python", word))

    assert words[python + 1 : python + 3] == ["-P", "-m"]


@SLOW
def test_torchrun_starts_ranks_as_it_was_started(flat: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "trainer.torchrun", "--nproc-per-node", "1", "-m", "trainer", "--help"],
        cwd=flat, env=trainer_env(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ended.returncode == 0
    assert ended.stdout.startswith("usage: python -m trainer")
