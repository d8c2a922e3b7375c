"""What others put into a folder that they share with this user runs in none of his trainings that start there later."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from launch import local
from launch.core import shell
from launch.core.shell import TOOLKIT, interpreter, this_python
from launch.slurm.script import step
from tests.conftest import trainer_env
from tests.launch.slurm.jobs import EVERY_KIND, resolved


def test_no_module_of_a_shared_folder_runs_in_a_job_that_starts_there(tmp_path: Path) -> None:
    """A colleague can leave one while the job waits in the queue: Python looks there first."""
    for name in ("trainer", "json", "torch", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('run by a stranger')\n")

    ended = subprocess.run(
        [*interpreter(sys.executable, tmp_path), "-m", "trainer", "--help"],
        cwd=tmp_path, env=trainer_env(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("usage: python -m trainer")


def test_nor_in_what_a_script_that_lies_elsewhere_trains_from_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whose own process imports nothing from there: Python looks where the script lies."""
    monkeypatch.chdir(tmp_path)
    commands: list[list[str]] = []
    monkeypatch.setattr(shell, "run", lambda command, *_, **__: commands.append(command) or 1)

    with pytest.raises(local.TrainerError):
        local.train(model="cnn", dataset="digits")

    assert [command[:4] for command in commands] == [[sys.executable, "-P", "-m", "trainer"]]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_of_job_on_slurm_is_started_so(kind: str) -> None:
    words = step(resolved(kind))
    python = next(place for place, word in enumerate(words) if re.fullmatch(r"(.*/)?python", word))

    assert words[python + 1 : python + 3] == ["-P", "-m"]


def test_torchrun_starts_ranks_as_it_was_started(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("raise SystemExit('the wrong trainer')\n")

    ended = subprocess.run(
        [sys.executable, "-P", "-m", "trainer.torchrun", "--nproc-per-node", "1", "-m", "trainer", "--help"],
        cwd=tmp_path, env=trainer_env(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("usage: python -m trainer")


def test_a_checkout_is_run_from_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert interpreter("python", TOOLKIT) == ("python",)
    monkeypatch.chdir(tmp_path)
    assert this_python() == (sys.executable, "-P")
