"""What a launch must know of the account, and the training jobs that SageMaker has of one of ours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

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
class Seen:
    """A training job as SageMaker lists it."""

    name: str
    status: str  # InProgress, Completed, Failed, Stopping, Stopped
    created: datetime

    @property
    def lives(self) -> bool:
        return self.status in ("InProgress", "Stopping")


@dataclass(frozen=True)
class Facts:
    """What lookup.py found.  problems: what speaks against a launch; unknown: what was not found out, in sentences.

    runs: what SageMaker has of this job, newest first.
    """

    region: str
    now: datetime
    account: str | None = None
    role: str | None = None
    role_from: str = ""
    bucket: str | None = None
    quotas: tuple[Quota, ...] = ()
    runs: tuple[Seen, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[TrainerError, ...] = ()
    unknown: tuple[str, ...] = ()
