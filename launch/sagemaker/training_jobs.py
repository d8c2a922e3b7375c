"""Finds training jobs: by name, by job, and all of the toolkit's in a region by their tags.  Reads only.

Those of a queue are found through it: see queue.py.

SageMaker accepts a name once, so each start of a job is a separate training job; see names.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from launch.aws.batch import is_alive
from launch.aws.client import Aws
from launch.aws.refusals import DENIED
from launch.core.errors import AwsError
from launch.core.job import check_job_name
from launch.sagemaker.names import attempt_prefix, number_of, start_name
from launch.sagemaker.queue import Queues, alone, is_attempt
from launch.sagemaker.training_job import RUNNING, STOPPING, TrainingJob, read_training_job
from trainer.errors import SettingsError, did_you_mean

RECENT = timedelta(days=1)
# At most 28 days of training, 28 of waiting for spot, and two for the end:
# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html
LONGEST_LIFE = timedelta(days=60)
KNOWN_FOR = timedelta(days=365)

REMEMBERED = timedelta(days=7)  # how long Batch has ended jobs: .../batch/latest/userguide/job_states.html

_COSTING = ({"StatusEquals": RUNNING}, {"StatusEquals": STOPPING}, {"WarmPoolStatusEquals": "Available"})


# ---- one training job


def queues(aws: Aws) -> Queues:
    """The toolkit's queues."""
    return Queues(aws, _described)


def find(aws: Aws, name: str) -> TrainingJob | None:
    """The training job called `name`, or None.  Raises AwsError."""
    described = _described(aws, name)
    return None if described is None else _with_tags(aws, described)


def describe(aws: Aws, name: str) -> TrainingJob:
    """The training job called `name`.  Raises AwsError."""
    return _with_tags(aws, aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": name}))


def refreshed(aws: Aws, training_job: TrainingJob) -> TrainingJob:
    """The current state of `training_job`, with its previous tags.  Raises AwsError."""
    if training_job.queued is not None and training_job.queued.id:
        return queues(aws).read(training_job.queued.id, training_job)
    described = aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": training_job.name})
    return replace(read_training_job(described, training_job.tags, aws.region), queued=training_job.queued)


def _described(aws: Aws, name: str) -> Mapping[str, Any] | None:
    try:
        return aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": name})
    except AwsError as error:
        if error.aws_code in ("ValidationException", "ResourceNotFound") and "not found" in str(error).lower():
            return None
        raise


def _with_tags(aws: Aws, described: Mapping[str, Any]) -> TrainingJob:
    tags = aws.pages("sagemaker", "ListTags", "Tags", {"ResourceArn": described["TrainingJobArn"]})
    return read_training_job(described, {tag["Key"]: tag["Value"] for tag in tags}, aws.region)


def running_names(aws: Aws, now: datetime) -> list[str]:
    """The names of all starts that wait or run in the region; none without credentials.  Raises AwsError."""
    if not aws.has_credentials:
        return []
    rows = listed_since(aws, now - LONGEST_LIFE, {"StatusEquals": RUNNING})
    waiting = [row["jobName"] for row in queues(aws).since(now - LONGEST_LIFE) if is_alive(row)]
    return [*(row["TrainingJobName"] for row in rows if not is_attempt(row["TrainingJobName"])), *waiting]


# ---- the starts of a job


@dataclass(frozen=True)
class Listed:
    """A row of SageMaker's list of training jobs, or of a queue."""

    name: str
    status: str  # InProgress, Completed, Failed, Stopping, Stopped
    service_job: str = ""  # its id, for a start through a queue
    attempt: str = ""  # its training job, if Batch has forgotten it

    @property
    def is_alive(self) -> bool:
        return self.status in (RUNNING, STOPPING)


def listed_since(aws: Aws, since: datetime, query: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """SageMaker's rows of the training jobs that match `query` and were created after `since`.  Raises AwsError.

    Without the bound SageMaker pages through all training jobs that the account ever had, filtering each page.
    """
    params = {**query, "CreationTimeAfter": since}
    return aws.pages("sagemaker", "ListTrainingJobs", "TrainingJobSummaries", params)


def starts_of(aws: Aws, job: str, now: datetime) -> tuple[Listed, ...]:
    """The training jobs named like starts of `job`, newest first.  Raises AwsError.

    Jobs older than KNOWN_FOR are found by name, if there is no younger one.
    """
    rows = listed_since(aws, now - KNOWN_FOR, {"NameContains": job})
    starts = {
        number: Listed(row["TrainingJobName"], row["TrainingJobStatus"])
        for row in rows
        if (number := number_of(row["TrainingJobName"], job)) is not None
    }
    starts |= {number_of(start.name, job) or 1: start for start in _through_queues(aws, job, now)}
    # The list may not include a job that was started a moment ago.
    following = max(starts, default=0) + 1
    while (described := _described(aws, start_name(job, following))) is not None:
        starts[following] = Listed(described["TrainingJobName"], described["TrainingJobStatus"])
        following += 1
    return tuple(starts[number] for number in sorted(starts, reverse=True))


def _through_queues(aws: Aws, job: str, now: datetime) -> list[Listed]:
    """The starts of `job` through a queue."""
    known = [
        Listed(row["jobName"], RUNNING if is_alive(row) else "Completed", row["jobId"])
        for row in queues(aws).starts_of(job)
    ]
    return [*_forgotten(aws, job, now - REMEMBERED if known else now), *known]


def _forgotten(aws: Aws, job: str, before: datetime) -> list[Listed]:
    """The starts whose service jobs Batch no longer has, by what their training jobs say, oldest first.

    Batch forgets a job a week after its end, and all jobs of a queue with the queue.
    """
    named = {"NameContains": attempt_prefix(job), "CreationTimeBefore": before}
    found = list[Listed]()
    for row in listed_since(aws, before - KNOWN_FOR, named)[::-1]:
        described = _described(aws, row["TrainingJobName"]) or {}
        start = described.get("HyperParameters", {}).get("sagemaker_job_name", "").strip('"')
        if number_of(start, job) is not None:
            found.append(Listed(start, row["TrainingJobStatus"], attempt=row["TrainingJobName"]))
    return found


def look_at(aws: Aws, start: Listed) -> TrainingJob:
    """The training job of a start.  Raises AwsError."""
    if start.attempt:
        return alone(describe(aws, start.attempt), start.name)
    return queues(aws).read(start.service_job) if start.service_job else describe(aws, start.name)


def of_job(aws: Aws, job: str, now: datetime) -> tuple[TrainingJob, ...]:
    """All starts of `job`, newest first.  Raises AwsError."""
    described = (look_at(aws, start) for start in starts_of(aws, job, now))
    return tuple(one for one in described if one.is_start and one.job == job)


def newest(aws: Aws, job: str | None, verb: str, now: datetime) -> TrainingJob:
    """The last start of `job`.  Raises SettingsError with the names of recent jobs if there is none."""
    if job is None:
        raise SettingsError(f"which job? python -m launch.sagemaker {verb} JOB.  {_names(recent(aws, now))}")
    check_job_name(job)
    if starts := of_job(aws, job, now):
        return starts[0]
    others = recent(aws, now)
    near = did_you_mean(job, sorted({one.job for one in others}))
    raise SettingsError(
        f"no job {job!r} in {aws.region}{near or '.'} {_names(others)} For another region add --region."
    )


def _names(training_jobs: tuple[TrainingJob, ...]) -> str:
    names = list(dict.fromkeys(one.job for one in training_jobs))
    return f"Jobs of the last day: {', '.join(names)}." if names else "There are no jobs of the last day."


# ---- all in a region


def costing(aws: Aws, now: datetime) -> tuple[TrainingJob, ...]:
    """The tagged training jobs that wait, run or have a warm pool; see TrainingJob.is_start.  Raises AwsError."""
    return _newest_first(_tagged(aws, *((now - LONGEST_LIFE, query) for query in _COSTING)), _in_queues(aws, now))


def recent(aws: Aws, now: datetime) -> tuple[TrainingJob, ...]:
    """costing() and the training jobs of the last day, newest first.  Raises AwsError."""
    tagged = _tagged(aws, *((now - LONGEST_LIFE, query) for query in _COSTING), (now - RECENT, {}))
    return _newest_first(tagged, _in_queues(aws, now, since=now - RECENT))


def _newest_first(*found: Iterable[TrainingJob]) -> tuple[TrainingJob, ...]:
    return tuple(sorted(chain(*found), key=lambda one: one.created, reverse=True))


def _in_queues(aws: Aws, now: datetime, since: datetime | None = None) -> list[TrainingJob]:
    """The starts that wait or run through a queue, and those submitted `since`."""
    ours, since_ms = queues(aws), since.timestamp() * 1000 if since else None
    rows = [row for row in ours.since(now - LONGEST_LIFE)
            if is_alive(row) or (since_ms is not None and row["createdAt"] > since_ms)]  # fmt: skip
    return [one for one in (ours.read(row["jobId"]) for row in rows) if one.is_tagged]


def _tagged(aws: Aws, *queries: tuple[datetime, Mapping[str, Any]]) -> list[TrainingJob]:
    """Without a queue's attempts, which are found through the queue."""
    names = dict[str, None]()
    for since, query in queries:
        rows = listed_since(aws, since, query)
        names |= dict.fromkeys(row["TrainingJobName"] for row in rows if not is_attempt(row["TrainingJobName"]))
    described = (_unless_denied(aws, name) for name in names)
    return [one for one in described if one is not None and one.is_tagged]


def _unless_denied(aws: Aws, name: str) -> TrainingJob | None:
    """The training job, or None if these credentials may not describe it."""
    try:
        return find(aws, name)
    except AwsError as error:
        if error.aws_code not in DENIED:
            raise
        return None
