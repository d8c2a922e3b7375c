"""Following a job while Slurm's controller does not answer, which the job itself does not notice."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from launch.core.clock import Clock
from launch.core.errors import Ended, LeftRunning
from launch.slurm.follow import FileTail, follow
from launch.slurm.listing import QueuedJob
from launch.slurm.lookup import Slurm
from launch.slurm.names import LOG, SCRIPT, STARTS
from launch.slurm.options import AttachOptions
from launch.slurm.runtime import Runtime
from launch.slurm.verbs import SlurmJobs
from tests.launch.slurm.jobs import left
from trainer import outcome
from trainer.contract import Exit
from trainer.errors import MachineError

BUSY = MachineError("Slurm's controller does not answer squeue (Socket timed out on send/recv operation); try again.")


@dataclass
class Time:
    """A clock that its sleeper moves on."""

    now: float = 0.0
    said: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def runtime(self, cwd: Path) -> Runtime:
        return Runtime({}, cwd, "python", Clock(lambda: self.now, self.sleep), self.said.append)


def listed(folder: Path) -> QueuedJob:
    return QueuedJob("7", "job", "RUNNING", "None", "0:10", "9:50", 1, "n0", "main", "N/A", folder / SCRIPT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a job that runs."""
    folder = left(tmp_path / "runs/job")
    (folder / STARTS).unlink()
    return folder


Answer = list[QueuedJob] | MachineError


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """What squeue says each time; the last for ever."""
    answers = list[Answer]()

    def ask(slurm: Slurm) -> list[QueuedJob]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, MachineError):
            raise answer
        return answer

    monkeypatch.setattr(Slurm, "queue", ask)
    monkeypatch.setattr(Slurm, "last_state", lambda slurm, job: "")
    return answers


def test_a_job_is_followed_on_after_a_busy_controllers_time_outs(folder: Path, queue: list[Answer]) -> None:
    """A sweep wrote that the run had failed, which went on to its end."""
    time = Time()
    queue += [[listed(folder)], *[BUSY] * 6, [listed(folder)], []]

    ended = follow("job", folder, FileTail(folder / LOG), Slurm({}), time.runtime(folder))

    assert ended.reason.startswith("it left the queue without noting why")  # as this one did, in the end
    assert [line for line in time.said if line.startswith("warning: ")] == [f"warning: {BUSY}\n  trying again"]


@pytest.mark.parametrize(("looks", "is_gone"), [(2, False), (0, False), (1, True)])
def test_a_job_that_a_busy_controller_says_nothing_of_has_not_failed(
    looks: int, is_gone: bool, folder: Path, tmp_path: Path, queue: list[Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, before it is found, and once it has left the queue: a sweep wrote that its runs had failed."""

    def ask(slurm: Slurm, job: str) -> str:
        raise BUSY

    time = Time()
    queue += [*[[listed(folder)]] * looks, [] if is_gone else BUSY]
    monkeypatch.setattr(Slurm, "last_state", ask)

    with pytest.raises((LeftRunning, MachineError), match="does not answer"):
        SlurmJobs(time.runtime(tmp_path)).attach(AttachOptions(job="job", outcome=tmp_path / "launcher"))

    written = outcome.read(tmp_path / "launcher")
    assert written is not None
    assert (written.state, written.exit_code) == ("interrupted", Exit.MACHINE)
    assert looks < 2 or 600 <= time.now < 700


def test_a_busy_controller_keeps_nobody_from_a_job(folder: Path, tmp_path: Path, queue: list[Answer]) -> None:
    """All runs of a sweep ask at once, and one that got no answer was taken for failed."""
    time = Time()
    queue += [BUSY, BUSY, [listed(folder)], []]

    with pytest.raises(Ended, match="it left the queue without noting why"):
        SlurmJobs(time.runtime(tmp_path)).attach(AttachOptions(job="job", outcome=None))

    assert time.said[:2] == [f"warning: {BUSY}\n  retrying"] * 2
