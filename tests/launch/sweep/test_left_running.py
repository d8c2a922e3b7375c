"""Jobs in the cloud that go on without their launcher: what a sweep ends is ended, and what it leaves it says."""

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from launch.core import shell
from launch.core.clock import Clock
from launch.core.ending import ask_to_end
from launch.core.interpreter import this_python
from launch.core.run import Run
from launch.sweep import sequence
from launch.sweep.diverging import ending
from launch.sweep.planned import Planned, plan_runs
from launch.sweep.price import Price
from launch.sweep.runner import Context
from launch.sweep.sequence import Work
from launch.sweep.spec import parse
from tests.launch.sweep.sweeps import TINY


@pytest.fixture
def signals() -> Iterator[None]:
    """SIGINT is not ignored, also where the shell that runs the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def planned(backend: str, count: int = 1, **options: object) -> list[Planned]:
    content = {"name": "tiny", "backend": backend, "fixed": TINY, "options": {backend: options}}
    return plan_runs(parse({**content, "grid": {"seed": list(range(count))}}, "sweep.yaml"), {}, ())


def play(folder: Path, todo: list[Planned], *launchers: str, diverged_at: float = 0.0) -> list[Run]:
    """A sweep whose launchers are these lines of shell, one after the other; $1 is the run's folder."""
    shells = {run.name: launcher for run, launcher in zip(todo, launchers, strict=True)}

    def words(run: Planned, context: Context) -> list[str]:
        return ["sh", "-c", shells[run.name], "sh", str(context.folder(run))]

    context = Context("tiny", "id", folder, folder / "runs", os.environ, Clock(), False, lambda line: None)
    own = replace(context, launcher=words, diverged_at=diverged_at)
    return sequence.sweep(Work(todo, todo, {run.name: Price() for run in todo}, {}), own)


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

    (run,) = play(tmp_path, planned("sagemaker", region="eu-west-1"), diverges, diverged_at=3.0)

    assert (run.state, run.reason[:13]) == ("failed", "it diverged: ")
    job = asked[0][asked[0].index("stop") + 1]
    assert asked == [[*this_python(), "-m", "launch.sagemaker", "stop", job, "--region", "eu-west-1"]]
    assert job.startswith("tiny-seed-0-")


@pytest.mark.parametrize("backend", ["sagemaker", "slurm"])
def test_of_a_rehearsal_the_player_is_ended_and_nothing_in_the_account(backend: str) -> None:
    (run,) = planned(backend)

    assert ending(run, "job", {}, rehearsed=True) is ask_to_end
    assert ending(run, "job", {}, rehearsed=False) is not ask_to_end
