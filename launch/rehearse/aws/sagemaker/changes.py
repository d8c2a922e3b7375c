"""The changes of a training job's state.

A job stays InProgress until advance(), complete(), fail() or interrupt() is called, as nodes/sagemaker/run.py
does.  Words marked [?] are guesses; the others were seen in AWS's answers or documentation.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from launch.rehearse.aws.access import locked
from launch.rehearse.aws.sagemaker.jobs import (
    INSTANCE_DIED,
    MESSAGES,
    NO_CAPACITY,
    TrainingJob,
    keep,
    set_message,
    set_status,
)
from launch.rehearse.aws.sagemaker.refusals import missing_data

SPOT_SHARE = 0.3  # of the time that is billed
PROGRESS = ("Starting", "Downloading", "Training", "Uploading")  # while InProgress


@locked
def advance(job: TrainingJob, to: str = "Training") -> None:
    """Advance a job that is InProgress to the status `to`, through those before it.

    It fails without capacity or data; a spot job waits for capacity.
    """
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    # Without instances it starts over; while it is Pending it is not past Starting.
    here = PROGRESS.index(job.secondary) if job.secondary in PROGRESS else 0 if job.secondary == "Pending" else -1
    assert here <= PROGRESS.index(to), f"{job.name} is {job.secondary} already"
    for status in PROGRESS[here + 1 : PROGRESS.index(to) + 1]:
        if status == "Downloading" and not _get_instances(job):
            return
        set_status(job, status)
        if status == "Downloading" and (missing := missing_data(job.request, job.arn)):
            fail(job, f"ClientError: Data download failed:NoSuchKey (404): {missing}")  # [?]
            return


def _get_instances(job: TrainingJob) -> bool:
    """Whether there is capacity; from then on the time is billed."""
    kind = next((kind for kind in job.instance_types if _has_capacity(job, kind)), None)
    if kind is not None:
        if len(job.instance_types) > 1:
            job.described["ResourceConfig"] |= {"SelectedInstanceType": kind, "SelectedInstanceCount": job.count}
        set_message(job, MESSAGES["Prepared"])
        job.described.setdefault("TrainingStartTime", job.rules.now())
        return True
    if job.is_spot:
        set_message(job, MESSAGES["No capacity"])
    elif job.plans or "MaxPendingTimeInSeconds" in job.described["StoppingCondition"]:
        if job.secondary != "Pending":
            set_status(job, "Pending")
    else:
        fail(job, NO_CAPACITY)
    return False


def _has_capacity(job: TrainingJob, kind: str) -> bool:
    """On demand, or of the training plan that it has for this type."""
    arn = job.plans.get(kind)
    running = [other for other in job.others if other.has_instances and other.instance_type == kind]
    needed = job.count + sum(other.count for other in running if other.plans.get(kind) == arn)
    if arn is not None:
        plan = job.rules.plans[arn]
        return plan.is_active and needed <= plan.count
    limit = job.rules.capacity.get(kind)
    return limit is None or needed <= limit


@locked
def complete(
    job: TrainingJob,
    seconds: float | None = None,
    billable: float | None = None,
    metrics: dict[str, float] | None = None,
) -> None:
    """Complete a job after `seconds` of training (default: since it began), of which `billable` are billed."""
    advance(job, "Uploading")
    if job.has_ended:
        return
    for name, value in (metrics or {}).items():
        measured(job, name, value)
    set_status(job, "Completed", "Completed")
    _close(job, seconds, billable)


@locked
def fail(job: TrainingJob, reason: str, seconds: float | None = None, billable: float | None = None) -> None:
    """Fail a job for `reason`, such as AlgorithmError: ...  Its files are uploaded first."""
    assert not job.has_ended, f"{job.name} is {job.status}"
    if job.secondary == "Training":
        set_status(job, "Uploading")
    job.described["FailureReason"] = reason[:1024]
    set_status(job, "Failed", "Failed")
    _close(job, seconds, billable)


@locked
def interrupt(job: TrainingJob) -> None:
    """Take a spot job's instances; advance() starts it again."""
    assert job.is_spot, f"{job.name} is no spot job"
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    set_status(job, "Interrupted")


@locked
def restart(job: TrainingJob) -> bool:
    """After an instance has died, restart the job on new ones or fail it.  Return whether it was restarted."""
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    retries = job.request.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0)
    if job.statuses.count("Restarting") >= retries:
        fail(job, INSTANCE_DIED)
        return False
    set_status(job, "Restarting")
    return True


@locked
def stopping(job: TrainingJob) -> None:
    """Begin to stop a job."""
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    job.shown_for = job.rules.answers_stopping or 0
    set_status(job, "Stopping", "Stopping")


@locked
def stopped(job: TrainingJob, status: str = "Stopped") -> None:
    """End a job that is stopping; the model that it has by then is uploaded."""
    assert job.status == "Stopping", f"{job.name} is {job.status}"
    if "Training" in job.statuses:
        set_status(job, "Uploading")
    set_status(job, status, "Stopped")
    _close(job, None, None)


@locked
def measured(job: TrainingJob, name: str, value: float) -> None:
    """Set the latest value of a metric."""
    others = [row for row in job.described.get("FinalMetricDataList", []) if row["MetricName"] != name]
    row = {"MetricName": name, "Value": value, "Timestamp": job.rules.now()}
    job.described["FinalMetricDataList"] = [*others, row]


@locked
def age(job: TrainingJob, seconds: float) -> None:
    """Move all times of this job into the past by `seconds`."""
    metrics = job.described.get("FinalMetricDataList", [])
    for part in (job.described, *job.described["SecondaryStatusTransitions"], *metrics):
        for key, value in part.items():
            if isinstance(value, datetime):
                part[key] = value - timedelta(seconds=seconds)


def _close(job: TrainingJob, seconds: float | None, billable: float | None) -> None:
    """Set what Describe shows of a job that has ended."""
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
    keep(job)
