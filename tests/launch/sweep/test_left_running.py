"""Jobs in the cloud that go on without their launcher: what a sweep ends is ended, and what it leaves it says."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from launch.core import shell
from launch.core.errors import Ended, LeftRunning
from launch.core.shell import this_python
from launch.sweep.end import insist
from launch.sweep.folder import earlier, left
from tests.launch.sweep.sweeps import ends, planned, play, rows
from trainer.errors import TrainerError


def test_a_run_that_diverges_is_stopped_where_its_job_goes_on_without_its_launcher(
    tmp_path: Path, signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SIGTERM to SageMaker's launcher leaves the job running, and it was paid for to its end."""
    asked = list[list[str]]()

    def stop(words: list[str], env: Mapping[str, str]) -> shell.Captured:
        asked.append(words)
        (tmp_path / "seed-0/stopped").touch()
        return shell.Captured(0, "", "")

    monkeypatch.setattr(shell, "run_captured", stop)
    diverges = (
        "trap 'exit 130' TERM; echo '[METRIC] epoch=1 train_loss=1.0'; echo '[METRIC] epoch=2 train_loss=3.5'; "
        "until [ -e $1/stopped ]; do sleep 0.02; done; exit 130"
    )

    (run,) = play(tmp_path, planned(1, "sagemaker", region="eu-west-1"), diverges, diverged_at=3.0)

    assert (run.state, run.reason[:13]) == ("failed", "it diverged: ")
    job = asked[0][asked[0].index("stop") + 1]
    assert asked == [[*this_python(), "-m", "launch.sagemaker", "stop", job, "--region", "eu-west-1"]]
    assert job.startswith("tiny-seed-0-")


def test_a_stop_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came in a moment without a network, and the job that had diverged trained on to its time limit."""
    codes, slept = [4, 6, 0, 0], list[float]()
    monkeypatch.setattr(shell, "run_captured", lambda words, env: shell.Captured(codes.pop(0), "", ""))

    insist(["stop"], {}, slept.append)

    assert (codes, slept) == ([0], [60.0, 60.0])


def leaves(code: int) -> str:
    """A launcher's last words in sh where it has left its job running."""
    outcome = LeftRunning("no AWS. The job is still running: attach JOB", code).outcome
    assert outcome is not None
    text = shlex.quote(outcome.as_json())
    return f"mkdir -p $1/launcher; echo {text} > $1/launcher/outcome.json; exit {code}"


@pytest.mark.parametrize("backend", ["ec2", "sagemaker"])
def test_a_job_that_its_launcher_lost_sight_of_has_not_failed_and_is_followed_again(
    backend: str, tmp_path: Path
) -> None:
    """A row that failed is not begun again: ten minutes without AWS lost a job that trained well, and its result."""
    todo = planned(2, backend)

    ended = play(tmp_path, todo, leaves(4), ends(0))

    assert [run.state for run in ended] == ["interrupted", "done"]
    assert ended[0].reason == "no AWS. The job is still running: attach JOB"
    assert left(todo, earlier(todo, tmp_path, retry_failed=False), retry_failed=False) == todo[:1]


def test_credentials_that_expired_under_a_job_make_one_row_that_failed_and_not_all(tmp_path: Path) -> None:
    with pytest.raises(Ended, match=r"AWS was lost in one run .* expired\. 1 run was not started"):
        play(tmp_path, planned(3, "sagemaker"), leaves(4), ends(4, "the credentials have expired."), ends(0))

    assert [row["state"] for row in rows(tmp_path).values()] == ["interrupted", "failed", "planned"]


def test_who_ends_a_sweep_learns_that_its_job_goes_on(tmp_path: Path) -> None:
    """As SageMaker's does after a SIGTERM: the row said that the run was stopped."""
    asked = f"leave() {{ {leaves(130)}; }}; trap 'leave $1' TERM; kill -TERM $PPID; while true; do sleep 0.02; done"

    with pytest.raises(TrainerError, match="stopped in run seed-0"):
        play(tmp_path, planned(1, "sagemaker"), asked)

    (row,) = rows(tmp_path).values()
    assert (row["state"], row["reason"]) == ("interrupted", "no AWS. The job is still running: attach JOB")


@pytest.mark.parametrize("backend", ["ec2", "sagemaker"])
def test_a_launcher_that_is_killed_leaves_the_command_that_ends_its_job(
    backend: str, tmp_path: Path, signals: None
) -> None:
    """By a second Ctrl-C, say: until AWS's answer nobody knows whether the job has ended."""
    impatient = "trap '' INT; kill -INT $PPID; sleep 0.2; kill -INT $PPID; sleep 9"

    with pytest.raises(Ended, match="stopped in run seed-0"):
        play(tmp_path, planned(1, backend, region="eu-west-1"), impatient)

    (row,) = rows(tmp_path).values()
    assert row["state"] == "interrupted"
    assert "Its job may still run; " in row["reason"]
    assert f"this stops it: python -m launch.{backend} stop tiny-seed-0-" in row["reason"]
    assert row["reason"].endswith(" --region eu-west-1")


@pytest.mark.parametrize("backend", ["sagemaker", "slurm"])
def test_a_job_whose_launcher_somebody_else_killed_is_followed_again(backend: str, tmp_path: Path) -> None:
    ended = play(tmp_path, planned(2, backend), "kill -KILL $$", ends(0))

    assert [run.state for run in ended] == ["interrupted", "done"]
    assert "killed by SIGKILL" in ended[0].reason
    assert f"this stops it: python -m launch.{backend} stop " in ended[0].reason
