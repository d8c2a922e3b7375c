"""What a launch must know of the account."""

from dataclasses import dataclass
from datetime import datetime

from launch.sagemaker.runs import Run
from trainer.errors import TrainerError


@dataclass(frozen=True)
class Quota:
    """How many instances of a type the account may have at a time, and how many training jobs have now.

    running: None where that could not be found out.
    """

    name: str
    limit: float
    running: int | None


@dataclass(frozen=True)
class Facts:
    """What lookup.py found.  problems: what speaks against a launch; unknown: what was not found out, in sentences.

    taken: names that training jobs have already, of those that starts of this job may have; running: the start that has
    not ended.
    """

    region: str
    now: datetime
    account: str | None = None
    role: str | None = None
    role_from: str = ""
    bucket: str | None = None
    quotas: tuple[Quota, ...] = ()
    taken: tuple[str, ...] = ()
    running: Run | None = None
    problems: tuple[TrainerError, ...] = ()
    unknown: tuple[str, ...] = ()
