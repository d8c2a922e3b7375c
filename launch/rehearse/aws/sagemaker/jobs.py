"""A training job as SageMaker's answers show it, what moves it on, and the warm pool that it may leave.

A job stays InProgress until somebody moves it on: advance(), complete(), fail(), interrupt(), time_out(); run.py does,
with containers.  Words marked [?] are not known to be AWS's own; the others were seen in its answers or documentation.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from moto.s3.models import s3_backends

from launch.rehearse.aws.sagemaker.rules import Rules, alone

SPOT_SHARE = 0.3  # of the time is billed
DEFAULT_RUN_S = 86_400
ROAD = ("Starting", "Downloading", "Training", "Uploading")  # while InProgress
WITHOUT_MACHINES = ("Interrupted", "Restarting")  # while InProgress, until it gets some again
ENDED = ("Completed", "Failed", "Stopped")
MESSAGES = {
    "Starting": "Starting the training job",
    "Prepared": "Preparing the instances for training",
    "No machines": "Insufficient capacity error from EC2 while launching instances, retrying!",
    "Downloading": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",  # [?]
    "Interrupted": "Training job interrupted: Spot capacity was reclaimed",  # [?]
    "Restarting": "Restarting the training job after an InternalServerError",  # [?]
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",  # [?]
    "MaxWaitTimeExceeded": "Training job wait time exceeded MaxWaitTimeInSeconds provided",  # [?]
}
MACHINE_DIED = "InternalServerError: We encountered an internal error. Please try again."
NO_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)


class TrainingJob:
    """A job as DescribeTrainingJob shows it: `described`, in AWS's own names.  asked: the request, unchanged."""

    def __init__(self, rules: Rules, arn: str, asked: dict[str, Any], jobs: dict[str, Any]) -> None:
        """jobs: all of its region, by name."""
        self.rules, self.arn, self.asked, self._jobs = rules, arn, asked, jobs
        self.tags = list(asked.get("Tags", []))
        self.shown_for = 0  # how many more answers say Stopping
        now = rules.now()
        self.described: dict[str, Any] = {
            "EnableNetworkIsolation": False,
            "EnableInterContainerTrafficEncryption": False,
            "EnableManagedSpotTraining": False,
            **json.loads(json.dumps({key: value for key, value in asked.items() if key != "Tags"})),
            "TrainingJobArn": arn,
            "TrainingJobStatus": "InProgress",
            "CreationTime": now,
            "SecondaryStatusTransitions": [],
        }
        self.described["StoppingCondition"].setdefault("MaxRuntimeInSeconds", DEFAULT_RUN_S)
        if self.kept_s:
            self.described["WarmPoolStatus"] = {"Status": "InUse"}
        _enter(self, "Starting")

    @property
    def name(self) -> str:
        return str(self.asked["TrainingJobName"])

    @property
    def status(self) -> str:
        return str(self.described["TrainingJobStatus"])

    @property
    def secondary(self) -> str:
        return str(self.described["SecondaryStatus"])

    @property
    def instance_type(self) -> str:
        return str(self.asked["ResourceConfig"].get("InstanceType", ""))

    @property
    def count(self) -> int:
        return int(self.asked["ResourceConfig"].get("InstanceCount", 1))

    @property
    def others(self) -> list[Any]:
        """The region's other jobs, oldest first."""
        return [job for job in list(self._jobs.values()) if job is not self]

    @property
    def is_spot(self) -> bool:
        return bool(self.described["EnableManagedSpotTraining"])

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def kept_s(self) -> int:
        """How long its machines stay after its end."""
        return int(self.described["ResourceConfig"].get("KeepAlivePeriodInSeconds") or 0)

    @property
    def pool(self) -> str | None:
        """The state of its warm pool by now."""
        cool(self)
        state = self.described.get("WarmPoolStatus")
        return None if state is None else str(state["Status"])

    @property
    def statuses(self) -> list[str]:
        """Every secondary status it has had."""
        return [str(transition["Status"]) for transition in self.described["SecondaryStatusTransitions"]]

    @property
    def model(self) -> str:
        """Where its model goes."""
        return f"{self.asked['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output/model.tar.gz"


def _enter(job: TrainingJob, status: str, primary: str = "") -> None:
    now, passed = job.rules.now(), job.described["SecondaryStatusTransitions"]
    if passed:
        passed[-1]["EndTime"] = now
    passed.append({"Status": status, "StartTime": now, "StatusMessage": MESSAGES[status]})
    job.described |= {"SecondaryStatus": status, "LastModifiedTime": now}
    if primary:
        job.described["TrainingJobStatus"] = primary


def _say(job: TrainingJob, message: str) -> None:
    """The present status goes on under another message."""
    job.described["SecondaryStatusTransitions"][-1]["StatusMessage"] = message
    job.described["LastModifiedTime"] = job.rules.now()


@alone
def advance(job: TrainingJob, to: str = "Training") -> None:
    """Moves a job that is InProgress on to `to`, through whatever comes before.

    It fails on the way where there are no machines or no data; a spot job waits for machines.
    """
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    here = ROAD.index(job.secondary) if job.secondary in ROAD else -1  # -1: without machines
    assert here <= ROAD.index(to), f"{job.name} is {job.secondary} already"
    for status in ROAD[here + 1 : ROAD.index(to) + 1]:
        if status == "Downloading" and not _get_machines(job):
            return
        _enter(job, status)
        if status == "Downloading" and (missing := missing_data(job.asked, job.arn)):
            fail(job, f"ClientError: Data download failed:NoSuchKey (404): {missing}")  # [?]
            return


def _get_machines(job: TrainingJob) -> bool:
    """Whether there are any; those are paid from now on."""
    if _has_machines(job):
        _say(job, MESSAGES["Prepared"])
        job.described.setdefault("TrainingStartTime", job.rules.now())
        return True
    if job.is_spot:
        _say(job, MESSAGES["No machines"])
    else:
        fail(job, NO_CAPACITY)
    return False


def _has_machines(job: TrainingJob) -> bool:
    limit = job.rules.capacity.get(job.instance_type)
    others = [other for other in job.others if other.instance_type == job.instance_type and not other.has_ended]
    return limit is None or sum(other.count for other in others if _has_started(other)) + job.count <= limit


def _has_started(job: TrainingJob) -> bool:
    return job.secondary not in ("Starting", *WITHOUT_MACHINES)


@alone
def complete(
    job: TrainingJob,
    seconds: float | None = None,
    billable: float | None = None,
    metrics: dict[str, float] | None = None,
) -> None:
    """A job ends well, after `seconds` of training (None: since it began), of which `billable` are to be paid."""
    advance(job, "Uploading")
    if job.has_ended:
        return
    for name, value in (metrics or {}).items():
        measured(job, name, value)
    _enter(job, "Completed", "Completed")
    _close(job, seconds, billable)


@alone
def fail(job: TrainingJob, reason: str, seconds: float | None = None, billable: float | None = None) -> None:
    """A job fails for `reason`, such as AlgorithmError: ...  What it had written by then is uploaded."""
    assert not job.has_ended, f"{job.name} is {job.status}"
    if job.secondary == "Training":
        _enter(job, "Uploading")
    job.described["FailureReason"] = reason[:1024]
    _enter(job, "Failed", "Failed")
    _close(job, seconds, billable)


@alone
def interrupt(job: TrainingJob) -> None:
    """AWS takes a spot job's machines; advance() starts it again."""
    assert job.is_spot, f"{job.name} is no spot job"
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    _enter(job, "Interrupted")


@alone
def restart(job: TrainingJob) -> bool:
    """A machine has died: the job loses all of them, and starts again if it may; if not, it fails.  Whether it may."""
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    retries = job.asked.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0)
    if job.statuses.count("Restarting") >= retries:
        fail(job, MACHINE_DIED)
        return False
    _enter(job, "Restarting")
    return True


@alone
def time_out(job: TrainingJob, limit: str = "MaxRuntimeExceeded") -> None:
    """A job is stopped by its own limit: MaxRuntimeExceeded or MaxWaitTimeExceeded."""
    stopping(job)
    stopped(job, limit)


@alone
def stopping(job: TrainingJob) -> None:
    """A job begins to stop."""
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    job.shown_for = job.rules.slow.stopping or 0
    _enter(job, "Stopping", "Stopping")


@alone
def stopped(job: TrainingJob, status: str = "Stopped") -> None:
    """A job that was stopping has stopped; the model it had by then is uploaded."""
    assert job.status == "Stopping", f"{job.name} is {job.status}"
    if "Training" in job.statuses:
        _enter(job, "Uploading")
    _enter(job, status, "Stopped")
    _close(job, None, None)


@alone
def measured(job: TrainingJob, name: str, value: float) -> None:
    """A metric's latest value."""
    others = [row for row in job.described.get("FinalMetricDataList", []) if row["MetricName"] != name]
    row = {"MetricName": name, "Value": value, "Timestamp": job.rules.now()}
    job.described["FinalMetricDataList"] = [*others, row]


@alone
def age(job: TrainingJob, seconds: float) -> None:
    """Everything of this job happened so much earlier."""
    metrics = job.described.get("FinalMetricDataList", [])
    for part in (job.described, *job.described["SecondaryStatusTransitions"], *metrics):
        for key, value in part.items():
            if isinstance(value, datetime):
                part[key] = value - timedelta(seconds=seconds)


def _close(job: TrainingJob, seconds: float | None, billable: float | None) -> None:
    """What Describe says of a job that has ended."""
    if "Uploading" in job.statuses:
        job.described["ModelArtifacts"] = {"S3ModelArtifacts": job.model}
    if "TrainingStartTime" in job.described:
        took = (job.rules.now() - job.described["TrainingStartTime"]).total_seconds()
        if seconds is not None and seconds > took:
            age(job, seconds - took)
            took = seconds
        now = job.rules.now()
        job.described["SecondaryStatusTransitions"][-1] |= {"StartTime": now, "EndTime": now}
        job.described |= {"TrainingEndTime": now, "LastModifiedTime": now}
        job.described["TrainingTimeInSeconds"] = round(took if seconds is None else seconds)
        paid = job.described["TrainingTimeInSeconds"] * (SPOT_SHARE if job.is_spot else 1)
        job.described["BillableTimeInSeconds"] = round(paid if billable is None else billable)
    _keep(job)


def missing_data(asked: dict[str, Any], arn: str) -> str:
    """AWS's sentence on the first channel that has nothing in it."""
    region, account = arn.split(":")[3:5]
    for channel in asked.get("InputDataConfig", []):
        source = channel["DataSource"].get("S3DataSource")
        bucket, _, prefix = source["S3Uri"].removeprefix("s3://").partition("/") if source else ("", "", "")
        there = s3_backends[account]["aws"].buckets.get(bucket)
        if source and not (there and any(key.startswith(prefix) for key in list(there.keys))):
            return (
                f'No S3 objects found under S3 URL "{source["S3Uri"]}" given in input data source. Please ensure that '
                f"the bucket exists in the selected region ({region}), that objects exist under that S3 prefix, and "
                f'that the role "{asked["RoleArn"]}" has "s3:ListBucket" permissions on bucket "{bucket}".'
            )
    return ""


# ---- warm pools


def _keep(job: TrainingJob) -> None:
    """The machines stay also after the job's or its user's own failure, if there were any."""
    if "WarmPoolStatus" not in job.described:
        return
    of_aws = job.status == "Failed" and not job.described["FailureReason"].startswith(("AlgorithmError", "ClientError"))
    is_kept = job.kept_s and "TrainingEndTime" in job.described and not of_aws
    job.described["WarmPoolStatus"] = {
        "Status": "Available" if is_kept else "Terminated",
        "ResourceRetainedBillableTimeInSeconds": 0,
    }


def cool(job: TrainingJob) -> None:
    """What has become of the warm pool since somebody looked."""
    pool = job.described.get("WarmPoolStatus", {})
    if pool.get("Status") != "Available":
        return
    idle_s = (job.rules.now() - job.described["TrainingEndTime"]).total_seconds()
    pool["ResourceRetainedBillableTimeInSeconds"] = int(min(idle_s, job.kept_s))
    if idle_s >= job.kept_s:
        pool["Status"] = "Terminated"


def likeness(job: TrainingJob) -> Any:
    """What jobs must have in common to use each other's machines."""
    machines = job.asked["ResourceConfig"]
    parts = [machines.get(key) for key in ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")]
    flags = [job.described[f"Enable{what}"] for what in ("NetworkIsolation", "InterContainerTrafficEncryption")]
    return job.asked["RoleArn"], job.asked.get("VpcConfig"), parts, flags, job.is_spot


def reuse(job: TrainingJob) -> None:
    """Takes the machines of an earlier job that waits for one like this."""
    for other in job.others:
        if other.pool == "Available" and likeness(other) == likeness(job):
            other.described["WarmPoolStatus"] |= {"Status": "Reused", "ReusedByJob": job.name}
            job.described["WarmPoolStatus"] = {"Status": "InUse"}
            return
