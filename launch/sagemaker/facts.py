"""The results of the look-ups, for the planner."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from launch.aws.batch import QueueFacts
from launch.aws.refusals import quota_increase
from launch.core.catalog import Instance
from launch.core.earlier import Earlier
from launch.core.manifest import Content
from launch.core.price import CATALOGS, Prices
from launch.sagemaker.training_job import TrainingJob
from trainer.errors import TrainerError


@dataclass(frozen=True)
class Quota:
    """A quota of the account, with its use."""

    name: str
    limit: float
    running: int | None  # used by running training jobs, None if unknown
    needed: int = 1  # by this job
    unit: str = "instances"  # of the numbers above
    lower: str = "--nodes"  # the option that reduces `needed`
    is_shared: bool = True  # by all running jobs, rather than a limit per job
    code: str = ""  # in Service Quotas

    @property
    def is_exceeded(self) -> bool:
        return self.needed + (self.running or 0) > self.limit

    def increase(self, region: str) -> str:
        """The command that asks for as much as the job needs."""
        return quota_increase("sagemaker", self.code, self.needed + (self.running or 0), region)

    @property
    def sum(self) -> str:
        """The needed and used amounts as text."""
        unit = "" if self.unit == "instances" else f" {self.unit}"
        if self.running == 0 and unit:
            return f"{self.needed:,}{unit} needed"
        return f"{self.needed:,} needed + {'an unknown number' if self.running is None else self.running} running"


ACROSS_JOBS = "Number of instances across all {}training jobs"


def quotas_of(training_job: TrainingJob) -> Iterator[str]:
    """The names of the quotas that the job's instances count against."""
    market = "spot " if training_job.is_spot else ""
    yield ACROSS_JOBS.format(market)
    if not training_job.is_reserved:
        yield f"{training_job.instance_type} for {market}training job usage"
    if training_job.keep_s:
        yield f"{training_job.instance_type} for training warm pool usage"


@dataclass(frozen=True)
class Facts:
    """Everything that the planner knows about the account and the job."""

    region: str
    now: datetime
    account: str | None = None
    owner: str = ""  # aws:userid of the caller
    role: str | None = None
    role_from: str = ""
    bucket: str | None = None
    image: str | None = None  # by its digest
    types: Mapping[str, Instance] = field(default_factory=dict)  # those that the catalog lacks, by name on EC2
    quotas: tuple[Quota, ...] = ()
    content: Content | None = None  # of a prepared data set in S3
    taken: tuple[str, ...] = ()  # names of existing training jobs that are, or look like, starts of this job
    etag: str = ""  # of job.json, which an earlier start wrote
    running: TrainingJob | None = None  # the start that has not ended yet
    queue: QueueFacts | None = None  # that the job is to wait in
    spent_usd: float | None = None  # cost of the ended starts, None without any
    is_sent: bool = False  # whether the script's source is in S3
    old_stack: str = ""  # the region of the account's stack, if its role may not read that source
    earlier: tuple[Earlier, ...] = ()  # jobs that trained the same script, newest first
    prices: Prices = CATALOGS
    problems: tuple[TrainerError, ...] = ()  # why the job cannot start
    unknown: tuple[str, ...] = ()  # what could not be looked up, as sentences
