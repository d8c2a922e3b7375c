"""The training jobs that SageMaker has of a job: its names are used once, so a job started again is another there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from launch import catalog
from launch.aws import Aws
from launch.names import DEADLINE_TAG, JOB_TAG, STARTED_TAG, read_time
from launch.price import HOURS_PER_MONTH
from launch.sagemaker.checks import DISK_USD
from launch.sagemaker.facts import Seen

RUNNING, STOPPING = "InProgress", "Stopping"
OVER = ("Completed", "Failed", "Stopped")
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
# How SageMaker names jobs of other tools, too; ours carry the tag.
_AGAIN = "--"


def run_name(job: str, number: int) -> str:
    """What SageMaker calls the job's `number`-th start, from 1: JOB, JOB--2, ..."""
    return job if number == 1 else f"{job}{_AGAIN}{number}"


def number_of(name: str, job: str) -> int | None:
    """The start of `job` that SageMaker calls `name`; None if it is another job's."""
    if name == job:
        return 1
    found = re.fullmatch(re.escape(job + _AGAIN) + r"(\d{1,4})", name)
    return int(found[1]) if found else None


def job_of(name: str) -> str:
    """The job whose start SageMaker calls `name`."""
    return re.sub(re.escape(_AGAIN) + r"\d{1,4}$", "", name)


def runs_of(aws: Aws, job: str) -> tuple[Seen, ...]:
    """What SageMaker has of `job`, newest first.  Raises AwsError."""
    listed = aws.pages("sagemaker", "ListTrainingJobs", "TrainingJobSummaries", {"NameContains": job})
    found = [
        (number, Seen(row["TrainingJobName"], row["TrainingJobStatus"], row["CreationTime"]))
        for row in listed
        if (number := number_of(row["TrainingJobName"], job)) is not None
    ]
    return tuple(seen for _, seen in sorted(found, key=lambda pair: -pair[0]))


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
        return read_time(self.tags[DEADLINE_TAG]) if DEADLINE_TAG in self.tags else None

    @property
    def token(self) -> str:
        """What tells one start from another that happens to have the same name."""
        return self.tags.get(STARTED_TAG, "")

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


def describe(aws: Aws, name: str) -> Run:
    """The training job that SageMaker calls `name`.  Raises AwsError."""
    described = aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": name})
    tags = aws.pages("sagemaker", "ListTags", "Tags", {"ResourceArn": described["TrainingJobArn"]})
    return read_run(described, {tag["Key"]: tag["Value"] for tag in tags}, aws.region)


def again(aws: Aws, run: Run) -> Run:
    """`run` as it is now; tags stay as they were made.  Raises AwsError."""
    described = aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": run.name})
    return read_run(described, run.tags, aws.region)


def read_run(described: Mapping[str, Any], tags: Mapping[str, str], region: str) -> Run:
    """DescribeTrainingJob's answer as a Run."""
    resources, pool = described.get("ResourceConfig", {}), described.get("WarmPoolStatus", {})
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
        model=described.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
        checkpoints=described.get("CheckpointConfig", {}).get("S3Uri"),
        hyperparameters=described.get("HyperParameters", {}),
        pool=pool.get("Status"),
        pool_s=pool.get("ResourceRetainedBillableTimeInSeconds", 0),
        tags=tags,
    )
