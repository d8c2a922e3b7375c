"""What a launch must know of the account."""

from dataclasses import dataclass
from datetime import datetime

from launch.core.price import CATALOGS, Prices
from launch.sagemaker.training_job import TrainingJob
from trainer.errors import TrainerError


@dataclass(frozen=True)
class Quota:
    """How many instances of a type the account may run at a time, and how many its training jobs run now.

    running: None where that could not be looked up.
    """

    name: str
    limit: float
    running: int | None


@dataclass(frozen=True)
class Facts:
    """What lookup.py found.  problems: reasons not to launch; unknown: what was not found out, as sentences.

    taken: the names of existing training jobs that starts of this job would have; running: the start that has not
    ended yet.
    """

    region: str
    now: datetime
    account: str | None = None
    role: str | None = None
    role_from: str = ""
    bucket: str | None = None
    quotas: tuple[Quota, ...] = ()
    taken: tuple[str, ...] = ()
    running: TrainingJob | None = None
    prices: Prices = CATALOGS
    problems: tuple[TrainerError, ...] = ()
    unknown: tuple[str, ...] = ()
