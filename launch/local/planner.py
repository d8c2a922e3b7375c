"""Job -> the command that runs it on this machine.  Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from launch.core.job import Job
from launch.core.training.base import Training
from launch.core.training.script import Script
from launch.local.options import LocalOptions
from trainer.contract import TIME_IN_NAMES
from trainer.errors import TrainerError


@dataclass(frozen=True)
class LocalPlan:
    """The command of a training on this machine."""

    command: tuple[str, ...]
    run_dir: Path  # of its results
    is_script: bool = False  # of the user's own
    warnings: tuple[str, ...] = ()
    problem: TrainerError | None = None  # why it cannot train

    def __str__(self) -> str:
        notes = [f"warning: {sentence}" for sentence in self.warnings]
        return "\n".join([shlex.join(self.command), *notes, *([f"problem: {self.problem}"] if self.problem else [])])


def plan(job: Job[LocalOptions], *, python: Sequence[str], now: datetime, letters: str) -> LocalPlan:
    """The command that runs `job` here.  Raises SettingsError for a global batch that does not divide by the processes.

    python: the interpreter, with flags; now, letters: for the default name of the run folder.
    """
    processes = job.train.processes(job.where.nproc_per_node, 0)
    job.train.check_ranks(1, processes)
    # Named here, so that all ranks, also after a restart, write into the same folder.
    run_dir = job.train.run_dir or new_run_dir(job.train, now, letters)
    command = (
        *(*python, "-m", "trainer.torchrun", "--standalone"),
        *("--nproc-per-node", str(processes)),
        *("--max-restarts", str(job.where.max_restarts)),
        *job.train.at(run_dir=run_dir).words,
    )
    return LocalPlan(command, run_dir, isinstance(job.train, Script), job.notes)


def new_run_dir(train: Training, now: datetime, letters: str) -> Path:
    """runs/<label>-<date>-<time>-<letters>, relative to where the command is started."""
    return Path("runs") / f"{train.label}-{now:{TIME_IN_NAMES}}-{letters}"
