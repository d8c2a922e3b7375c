"""The training jobs that SageMaker has of a job: its names are used once, so a job started again is another there."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from launch.core import catalog
from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import JOB_TAG, STARTED_TAG
from launch.core.price import HOURS_PER_MONTH
from launch.sagemaker.checks import DISK_USD
from launch.sagemaker.names import job_of, number_of, run_name

RUNNING, STOPPING = "InProgress", "Stopping"
OVER = ("Completed", "Failed", "Stopped")
LOG_GROUP = "/aws/sagemaker/TrainingJobs"


@dataclass(frozen=True)
class Seen:
    """A training job as SageMaker lists it."""

    name: str
    status: str  # InProgress, Completed, Failed, Stopping, Stopped

    @property
    def lives(self) -> bool:
        return self.status in ("InProgress", "Stopping")


def runs_of(aws: Aws, job: str) -> tuple[Seen, ...]:
    """The training jobs whose names starts of `job` may have, newest first.  Raises AwsError."""
    listed = aws.pages("sagemaker", "ListTrainingJobs", "TrainingJobSummaries", {"NameContains": job})
    found = {
        number: Seen(row["TrainingJobName"], row["TrainingJobStatus"])
        for row in listed
        if (number := number_of(row["TrainingJobName"], job)) is not None
    }
    # A listing may not yet have what was started a moment ago.
    following = max(found, default=0) + 1
    while (described := described_as(aws, run_name(job, following))) is not None:
        found[following] = Seen(described["TrainingJobName"], described["TrainingJobStatus"])
        following += 1
    return tuple(found[number] for number in sorted(found, reverse=True))


@dataclass(frozen=True)
class Run:
    """A training job as SageMaker describes it, with the toolkit's tags.  Times are UTC; seconds are SageMaker's count.

    detail: its secondary status, such as Downloading; said: what it said about each, oldest first; billed_s: of each
    instance, None before the end.
    """

    name: str
    region: str
    status: str
    detail: str
    said: tuple[tuple[str, str], ...]
    created: datetime
    started: datetime | None
    ended: datetime | None
    trained_s: int | None
    billed_s: int | None
    failure: str
    instance_type: str
    nodes: int
    disk_gb: int
    is_spot: bool
    max_run_s: int
    max_wait_s: int | None
    keep_s: int  # how long its machines are kept after it
    model: str | None
    checkpoints: str | None
    hyperparameters: Mapping[str, str]
    pool: str | None  # Available, Reused, Terminated, InUse
    pool_s: int
    tags: Mapping[str, str]

    @property
    def job(self) -> str:
        return self.tags.get(JOB_TAG, job_of(self.name))

    @property
    def is_ours(self) -> bool:
        return JOB_TAG in self.tags

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    @property
    def machines(self) -> str:
        return f"{self.nodes} x {self.instance_type}{', spot' if self.is_spot else ''}"

    @property
    def deadline(self) -> datetime | None:
        """When SageMaker ends it; None while it waits for machines on demand, which costs nothing."""
        if self.max_wait_s is not None:
            return self.created + timedelta(seconds=self.max_wait_s)
        return self.started + timedelta(seconds=self.max_run_s) if self.started else None

    @property
    def token(self) -> str:
        """What tells one start from another that happens to have the same name."""
        return self.tags.get(STARTED_TAG, "")

    @property
    def settings(self) -> dict[str, Any]:
        """What the trainer was told, without what SageMaker's SDK adds."""
        own = {name: text for name, text in self.hyperparameters.items() if not name.startswith("sagemaker_")}
        return {name: json.loads(text) for name, text in own.items()}

    @property
    def usd_per_hour(self) -> float:
        """Of all its instances with their disks, on demand; 0 for a type the catalog does not know."""
        known = catalog.load().get(self.instance_type.removeprefix(catalog.SAGEMAKER_PREFIX))
        if known is None or known.sagemaker_usd_per_hour is None:
            return 0.0
        disk = 0.0 if known.nvme_gb else self.disk_gb * DISK_USD / HOURS_PER_MONTH
        return self.nodes * (known.sagemaker_usd_per_hour + disk)

    def billed(self, now: datetime) -> timedelta:
        """How long each instance is paid for so far: before its end, since the training began."""
        if self.billed_s is not None:
            return timedelta(seconds=self.billed_s)
        return max(timedelta(0), (self.ended or now) - self.started) if self.started else timedelta(0)

    @property
    def saved(self) -> float | None:
        """The share of the training's time that a spot job was not billed; None on demand, and before the end."""
        if not self.is_spot or not self.trained_s or self.billed_s is None:
            return None
        return 1 - self.billed_s / self.trained_s

    def cost(self, now: datetime) -> float:
        """USD so far.  What spot saves is in billed_s, which SageMaker tells at the end."""
        hours = self.billed(now).total_seconds() / 3600 + self.pool_s / 3600
        return self.usd_per_hour * hours


def described_as(aws: Aws, name: str) -> Mapping[str, Any] | None:
    """What SageMaker says of the training job called `name`, or None if there is none.  Raises AwsError."""
    try:
        return aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": name})
    except AwsError as error:
        if error.aws_code in ("ValidationException", "ResourceNotFound") and "not found" in str(error).lower():
            return None
        raise


def find(aws: Aws, name: str) -> Run | None:
    """The training job that SageMaker calls `name`, or None if there is none.  Raises AwsError."""
    described = described_as(aws, name)
    return None if described is None else _tagged(aws, described)


def describe(aws: Aws, name: str) -> Run:
    """The training job that SageMaker calls `name`.  Raises AwsError."""
    return _tagged(aws, aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": name}))


def _tagged(aws: Aws, described: Mapping[str, Any]) -> Run:
    tags = aws.pages("sagemaker", "ListTags", "Tags", {"ResourceArn": described["TrainingJobArn"]})
    return read_run(described, {tag["Key"]: tag["Value"] for tag in tags}, aws.region)


def again(aws: Aws, run: Run) -> Run:
    """`run` as it is now; tags stay as they were made.  Raises AwsError."""
    described = aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": run.name})
    return read_run(described, run.tags, aws.region)


def read_run(described: Mapping[str, Any], tags: Mapping[str, str], region: str) -> Run:
    """DescribeTrainingJob's answer as a Run."""
    resources, pool = described.get("ResourceConfig", {}), described.get("WarmPoolStatus", {})
    limits = described.get("StoppingCondition", {})
    said: Sequence[Mapping[str, Any]] = described.get("SecondaryStatusTransitions", ())
    return Run(
        name=described["TrainingJobName"],
        region=region,
        status=described["TrainingJobStatus"],
        detail=described.get("SecondaryStatus", ""),
        said=tuple((row["Status"], row.get("StatusMessage", "")) for row in said),
        created=described["CreationTime"],
        started=described.get("TrainingStartTime"),
        ended=described.get("TrainingEndTime"),
        trained_s=described.get("TrainingTimeInSeconds"),
        billed_s=described.get("BillableTimeInSeconds"),
        failure=described.get("FailureReason", ""),
        instance_type=resources.get("InstanceType", ""),
        nodes=resources.get("InstanceCount", 0),
        disk_gb=resources.get("VolumeSizeInGB", 0),
        is_spot=bool(described.get("EnableManagedSpotTraining")),
        max_run_s=limits.get("MaxRuntimeInSeconds", 0),
        max_wait_s=limits.get("MaxWaitTimeInSeconds"),
        keep_s=resources.get("KeepAlivePeriodInSeconds", 0),
        model=described.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
        checkpoints=described.get("CheckpointConfig", {}).get("S3Uri"),
        hyperparameters=described.get("HyperParameters", {}),
        pool=pool.get("Status"),
        pool_s=pool.get("ResourceRetainedBillableTimeInSeconds", 0),
        tags=tags,
    )
