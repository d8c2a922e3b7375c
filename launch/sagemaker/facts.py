"""What a launch must know of the account."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from launch.core.earlier import Earlier
from launch.core.manifest import Content
from launch.core.price import CATALOGS, Prices
from launch.sagemaker.training_job import TrainingJob
from trainer.errors import TrainerError


@dataclass(frozen=True)
class Quota:
    """A limit of the account, and how much of it the running training jobs use.

    needed: by the job; running: None where that could not be looked up; unit: of all three; lower: the option of the
    job that takes less of it; is_shared: by all jobs that run, not a limit of each.
    """

    name: str
    limit: float
    running: int | None
    needed: int = 1
    unit: str = "instances"
    lower: str = "--nodes"
    is_shared: bool = True

    @property
    def is_exceeded(self) -> bool:
        return self.needed + (self.running or 0) > self.limit

    @property
    def sum(self) -> str:
        """The quota's sum in words: what the job needs beside what runs."""
        unit = "" if self.unit == "instances" else f" {self.unit}"
        if self.running == 0 and unit:
            return f"{self.needed:,}{unit} needed"
        return f"{self.needed:,} needed + {'an unknown number' if self.running is None else self.running} running"


ACROSS_JOBS = "Number of instances across all {}training jobs"


def quotas_of(training_job: TrainingJob) -> Iterator[str]:
    """The names of the quotas that its instances count against while it runs."""
    market = "spot " if training_job.is_spot else ""
    yield ACROSS_JOBS.format(market)
    if not training_job.is_reserved:
        yield f"{training_job.instance_type} for {market}training job usage"
    if training_job.keep_s:
        yield f"{training_job.instance_type} for training warm pool usage"


@dataclass(frozen=True)
class Facts:
    """What lookup.py found.  problems: reasons not to launch; unknown: what was not found out, as sentences.

    taken: the names of existing training jobs that starts of this job would have; running: the start that has not
    ended yet; spent_usd: what those have cost that have, None where there is none; earlier: jobs that trained the same
    script, the newest first.
    """

    region: str
    now: datetime
    account: str | None = None
    owner: str = ""  # aws:userid of who launches
    role: str | None = None
    role_from: str = ""
    bucket: str | None = None
    image: str | None = None  # by its digest
    quotas: tuple[Quota, ...] = ()
    content: Content | None = None  # of a prepared data set in S3
    taken: tuple[str, ...] = ()
    etag: str = ""  # of job.json, which an earlier start wrote
    running: TrainingJob | None = None
    spent_usd: float | None = None
    is_sent: bool = False  # whether S3 has the source of the script
    old_stack: str = ""  # the region of the account's stack, if its role may not read that source
    earlier: tuple[Earlier, ...] = ()
    prices: Prices = CATALOGS
    problems: tuple[TrainerError, ...] = ()
    unknown: tuple[str, ...] = ()
