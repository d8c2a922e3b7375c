"""A training job as SageMaker describes it: state, times, price.  Pure; training_jobs.py looks them up."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from launch.aws.batch import Queued
from launch.aws.names import BUCKET_TAG, HOURLY_TAG, JOB_TAG, OWNER_TAG, STARTED_TAG, Folder, is_ours, read_usd
from launch.core import catalog
from launch.core.jobs import Phase
from launch.core.price import HOURS_PER_MONTH
from launch.sagemaker.checks import DISK_USD
from launch.sagemaker.names import REGISTER_TAG, job_of, number_of
from trainer.contract import SAGEMAKER_HYPERPARAMETER
from trainer.settings.hidden import without_secrets

RUNNING, STOPPING = "InProgress", "Stopping"
# Deleting: while SageMaker deletes one that is over:
# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DeleteTrainingJob.html
OVER = ("Completed", "Failed", "Stopped", "Deleting")
LOG_GROUP = "/aws/sagemaker/TrainingJobs"


@dataclass(frozen=True)
class TrainingJob:
    """A training job with the toolkit's tags.  Times are in UTC; seconds are as SageMaker reports them."""

    name: str
    region: str
    status: str
    detail: str  # secondary status, such as Downloading
    transitions: tuple[tuple[str, str], ...]  # secondary statuses with SageMaker's messages, oldest first
    created: datetime
    started: datetime | None
    ended: datetime | None
    trained_s: int | None
    billed_s: int | None  # per instance, None before the end
    failure: str
    instance_type: str
    nodes: int
    disk_gb: int
    is_spot: bool
    max_run_s: int
    max_wait_s: int | None
    max_pending_s: int | None
    keep_s: int  # seconds to keep its instances in a warm pool
    model: str | None
    checkpoints: str | None
    hyperparameters: Mapping[str, str]
    pool: str | None  # Available, Reused, Terminated, InUse
    pool_s: int
    tags: Mapping[str, str]
    has_shell: bool = False  # --remote-debug
    is_reserved: bool = False  # on capacity of a training plan
    tuning_job: str = ""  # the tuning job from which it has its tags
    queued: Queued | None = None  # through a queue
    earlier_s: int = 0  # billed seconds per instance of earlier attempts through a queue
    phases: tuple[Phase, ...] = ()  # by its secondary statuses

    @property
    def start(self) -> str:
        """The toolkit's name of this start of the job."""
        return self.queued.name if self.queued else self.name

    @property
    def waits(self) -> bool:
        """Whether it has no training job yet, or none since an attempt that failed."""
        return self.queued is not None and self.name == self.queued.name

    @property
    def job(self) -> str:
        return self.tags.get(JOB_TAG, job_of(self.start))

    @property
    def folder(self) -> Folder | None:
        """The job's folder in S3; None if its tags do not name the bucket."""
        bucket = self.tags.get(BUCKET_TAG)
        return Folder(bucket, self.job) if bucket else None

    @property
    def is_tagged(self) -> bool:
        """Whether it carries a job's tag."""
        return JOB_TAG in self.tags

    @property
    def is_start(self) -> bool:
        """Whether its name is that of a start of the job in its tag; tuning jobs pass their tags to other jobs."""
        return is_ours(self.tags) and number_of(self.start, self.tags[JOB_TAG]) is not None

    @property
    def owner(self) -> str:
        """aws:userid of the caller who started it; empty if unknown."""
        return self.tags.get(OWNER_TAG, "")

    @property
    def registers_in(self) -> str | None:
        """The model package group in which to register its model."""
        return self.tags.get(REGISTER_TAG)

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    @property
    def machines(self) -> str:
        return f"{self.nodes} x {self.instance_type}{', spot' if self.is_spot else ''}"

    @property
    def deadline(self) -> datetime | None:
        """When SageMaker ends it; None while it waits in a queue or for on-demand instances, which is free."""
        if self.waits:
            return None
        if self.max_wait_s is not None:
            return self.created + timedelta(seconds=self.max_wait_s)
        return self.started + timedelta(seconds=self.max_run_s) if self.started else None

    @property
    def token(self) -> str:
        """Distinguishes this start from another of the same name."""
        return self.tags.get(STARTED_TAG, "")

    @property
    def console(self) -> str:
        """Its page in the AWS console."""
        suffix = "amazonaws.cn" if self.region.startswith("cn-") else "aws.amazon.com"
        place = f"https://{self.region}.console.{suffix}"
        if self.waits:
            return f"{place}/batch/home?region={self.region}"
        return f"{place}/sagemaker/home?region={self.region}#/jobs/{self.name}"

    @property
    def settings(self) -> dict[str, Any]:
        """The trainer's hyperparameters, without those of SageMaker's SDK; values that are not JSON stay text."""
        return {name: _value(text) for name, text in self.hyperparameters.items() if _is_own(name)}

    @property
    def usd_per_hour(self) -> float:
        """USD per hour of all its instances with their disks, on demand, by its price tag if it has one.

        0 for types that the catalog lacks, and in a training plan, which is paid in advance.
        """
        known = catalog.load().get(self.instance_type.removeprefix(catalog.SAGEMAKER_PREFIX))
        if known is None or known.sagemaker_usd_per_hour is None or self.is_reserved:
            return 0.0
        tagged = read_usd(self.tags.get(HOURLY_TAG))
        rate = known.sagemaker_usd_per_hour if tagged is None else tagged
        disk = 0.0 if known.nvme_gb else self.disk_gb * DISK_USD / HOURS_PER_MONTH
        return self.nodes * (rate + disk)

    @property
    def usd_per_hour_now(self) -> float:
        """USD per hour now: 0 before its start, and after its end without a warm pool."""
        is_billed = (self.started is not None and not self.is_over) or self.pool == "Available"
        return self.usd_per_hour if is_billed else 0.0

    def billed(self, now: datetime) -> timedelta:
        """The billed time per instance so far; before the job's end, the time since the training began."""
        if self.billed_s is not None:
            return timedelta(seconds=self.billed_s)
        return max(timedelta(0), (self.ended or now) - self.started) if self.started else timedelta(0)

    @property
    def saved(self) -> float | None:
        """The unbilled share of a spot job's training time; None on demand, and before the end."""
        if not self.is_spot or not self.trained_s or self.billed_s is None:
            return None
        return 1 - self.billed_s / self.trained_s

    def cost(self, now: datetime) -> float:
        """USD so far.  Spot's saving is included only at the end, when SageMaker reports billed_s."""
        hours = (self.billed(now).total_seconds() + self.pool_s + self.earlier_s) / 3600
        return self.usd_per_hour * hours


def _is_own(name: str) -> bool:
    return not name.startswith("sagemaker_") or name == SAGEMAKER_HYPERPARAMETER


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_training_job(described: Mapping[str, Any], tags: Mapping[str, str], region: str) -> TrainingJob:
    """The training job in an answer of DescribeTrainingJob."""
    resources, pool = described.get("ResourceConfig", {}), described.get("WarmPoolStatus", {})
    limits = described.get("StoppingCondition", {})
    transitions: Sequence[Mapping[str, Any]] = described.get("SecondaryStatusTransitions", ())
    return TrainingJob(
        name=described["TrainingJobName"],
        region=region,
        status=described["TrainingJobStatus"],
        detail=described.get("SecondaryStatus", ""),
        transitions=tuple((row["Status"], row.get("StatusMessage", "")) for row in transitions),
        created=described["CreationTime"],
        started=described.get("TrainingStartTime"),
        ended=described.get("TrainingEndTime"),
        trained_s=described.get("TrainingTimeInSeconds"),
        billed_s=described.get("BillableTimeInSeconds"),
        failure=without_secrets(described.get("FailureReason", "")),  # may contain a script's own output
        instance_type=_type_of(resources),
        nodes=resources.get("InstanceCount", 0),
        disk_gb=resources.get("VolumeSizeInGB", 0),
        is_spot=bool(described.get("EnableManagedSpotTraining")),
        max_run_s=limits.get("MaxRuntimeInSeconds", 0),
        max_wait_s=limits.get("MaxWaitTimeInSeconds"),
        max_pending_s=limits.get("MaxPendingTimeInSeconds"),
        keep_s=resources.get("KeepAlivePeriodInSeconds", 0),
        model=described.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
        checkpoints=described.get("CheckpointConfig", {}).get("S3Uri"),
        hyperparameters=described.get("HyperParameters", {}),
        pool=pool.get("Status"),
        pool_s=pool.get("ResourceRetainedBillableTimeInSeconds", 0),
        tags=tags,
        has_shell=bool(described.get("RemoteDebugConfig", {}).get("EnableRemoteDebug")),
        is_reserved=_is_reserved(resources),
        tuning_job=described.get("TuningJobArn", "").rpartition("/")[2],
        phases=tuple(Phase(row["Status"], row["StartTime"], row.get("EndTime")) for row in transitions if _lasts(row)),
    )


def _lasts(transition: Mapping[str, Any]) -> bool:
    """Whether it is to a status that lasts, unlike the end."""
    return transition["Status"] not in OVER and transition["StartTime"] != transition.get("EndTime")


def _type_of(resources: Mapping[str, Any]) -> str:
    """The instance type; of several preferences the selected one, or all before the selection."""
    preferred = " or ".join(one["InstanceType"] for one in resources.get("InstancePreferences", ()))
    return str(resources.get("InstanceType") or resources.get("SelectedInstanceType") or preferred)


def _is_reserved(resources: Mapping[str, Any]) -> bool:
    """Whether the job, or its selected instance type, uses a training plan."""
    with_plans = {
        one["InstanceType"] for one in resources.get("InstancePreferences", ()) if one.get("TrainingPlanArns")
    }
    return bool(resources.get("TrainingPlanArn")) or resources.get("SelectedInstanceType") in with_plans
