"""A job: what to train, and where and how to run it; and jobs that are submitted as one batch."""

import json
import re
from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from launch.core.training.base import Training
from trainer.contract import RANDOM_LETTERS, TIME_IN_NAMES, random_letters
from trainer.errors import SettingsError

Where = TypeVar("Where", bound=BaseModel)


@dataclass(frozen=True)
class Job(Generic[Where]):
    """A training, and a backend's options."""

    train: Training
    where: Where
    notes: tuple[str, ...] = ()  # for the plan, on settings of its file that the backend does not use


@dataclass(frozen=True)
class Member:
    """One of the jobs of a batch."""

    name: str
    folder: Path  # of its run; relative to the current folder, or absolute
    job: Job[Any]
    is_unseen: bool  # it was submitted before and has ended since, and its outcome has not been recorded


@dataclass(frozen=True)
class Batch:
    """What the jobs that are submitted together share."""

    name: str
    folder: Path  # for what they share
    at_once: int  # how many may run at a time
    env: Mapping[str, str]  # of the user
    say: Callable[[str], None]


# Returns the names of the jobs to attach to, in the order of their starts; the others are to be launched one by one.
Submit = Callable[[Sequence[Member], Batch], list[str]]


JOB_NAME = r"^[A-Za-z0-9]([A-Za-z0-9-]{0,46}[A-Za-z0-9])?$"


def check_job_name(name: str) -> str:
    """`name`, if every AWS service accepts it.  Raises SettingsError."""
    if not re.fullmatch(JOB_NAME, name):
        raise SettingsError(
            f"--job-name {name}: at most 48 letters, digits and hyphens, with a letter or digit at both ends."
        )
    return name


# Options of how the launcher behaves, which may differ between two starts of a job.
NOT_THE_JOB = {"anyway", "detach", "fetch", "job_name", "max_nodes", "max_usd", "new", "region", "wait",
               "wait_for_capacity"}  # fmt: skip


def letters_of(job: Job[Any]) -> str:
    """Five letters of the settings and the source: the end of the default names of equal jobs."""
    where = job.where.model_dump(mode="json", exclude=NOT_THE_JOB)
    content = json.dumps([list(job.train.words), job.train.cwd, job.train.digest, where], sort_keys=True)
    return b32encode(sha256(content.encode()).digest())[:5].decode().lower()


def job_name(job: Job[Any], now: datetime, running: Callable[[], Iterable[str]]) -> str:
    """The user's name for the job, that of an equal job that runs, or a new one.

    running: looks up the names of the jobs that run; called only where one may be equal.
    """
    options = job.where.model_dump()
    if options["job_name"]:
        return str(options["job_name"])
    if options["new"]:
        return default_job_name(job.train.label, now, random_letters())
    letters = letters_of(job)
    equal = (name for name in are_default(running(), job.train.label) if name.endswith(f"-{letters}"))
    return next(equal, default_job_name(job.train.label, now, letters))


def default_job_name(label: str, now: datetime, letters: str) -> str:
    """A job name such as imagenet-resnet18-20261121-134500-k3v7q, of at most 48 characters.

    label: of the training; any text.
    """
    return f"{stem_of(label)}-{now:{TIME_IN_NAMES}}-{letters}"


def are_default(names: Iterable[str], label: str) -> list[str]:
    """Filter `names` by the pattern that default_job_name() makes of `label`, newest first."""
    of_this = re.compile(rf"{re.escape(stem_of(label))}-\d{{8}}-\d{{6}}-{RANDOM_LETTERS}", re.ASCII)
    return sorted((name for name in names if of_this.fullmatch(name)), reverse=True)


def stem_of(label: str) -> str:
    """The beginning of a default job name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-")[:26].rstrip("-") or "job"
