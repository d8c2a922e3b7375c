"""Job -> the command that runs it on this machine.  Pure."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from launch.core.job import Job
from launch.local.options import LocalOptions
from trainer.batches import check_batches
from trainer.config import TrainConfig
from trainer.contract import TIME_IN_NAMES
from trainer.settings.flags import to_argv


@dataclass(frozen=True)
class LocalPlan:
    """run_dir: where the command leaves its results."""

    command: tuple[str, ...]
    run_dir: Path


def plan(job: Job[LocalOptions], *, python: str, now: datetime, process: int) -> LocalPlan:
    """The command that runs `job` here.  Raises SettingsError for a global batch that its processes cannot share.

    python: the interpreter; now, process: the launcher's, which name the run folder if nothing else does.
    """
    check_batches(job.train, job.where.nproc_per_node)
    # Decided here, so that all ranks, and the same ranks after a restart, write into one folder.
    run_dir = job.train.run_dir or new_run_dir(job.train, now, process)
    train = job.train.model_copy(update={"run_dir": run_dir})
    command = (
        *(python, "-m", "trainer.torchrun", "--standalone"),
        *("--nproc-per-node", str(job.where.nproc_per_node)),
        *("--max-restarts", str(job.where.max_restarts)),
        *("-m", "trainer", *to_argv(train)),
    )
    return LocalPlan(command, run_dir)


def new_run_dir(train: TrainConfig, now: datetime, process: int) -> Path:
    """runs/<dataset>-<model>-<date>-<time>-<process>, relative to where the command is started.

    As trainer.torchrun names a run of its own; by the time alone two runs of a second would share one.
    """
    return Path("runs") / f"{train.dataset}-{train.model}-{now:{TIME_IN_NAMES}}-{process}"
