"""The toolkit's training jobs in a region, found by their tags.  Reads only."""

from datetime import datetime, timedelta
from typing import Any

from launch.core.aws import DENIED, Aws
from launch.core.errors import AwsError
from launch.core.names import check_job_name
from launch.sagemaker.runs import RUNNING, STOPPING, Run, describe, find, runs_of
from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean

RECENT = timedelta(days=1)

_COSTING = ({"StatusEquals": RUNNING}, {"StatusEquals": STOPPING}, {"WarmPoolStatusEquals": "Available"})


def costing(aws: Aws) -> tuple[Run, ...]:
    """Those that run, and those whose machines are kept.  Raises AwsError."""
    return _ours(aws, *_COSTING)


def recent(aws: Aws, now: datetime) -> tuple[Run, ...]:
    """costing() and those of the last day, newest first.  Raises AwsError."""
    return _ours(aws, *_COSTING, {"CreationTimeAfter": now - RECENT})


def of_job(aws: Aws, job: str) -> tuple[Run, ...]:
    """All starts of `job`, newest first.  Raises AwsError."""
    runs = (describe(aws, seen.name) for seen in runs_of(aws, job))
    return tuple(run for run in runs if run.is_ours and run.job == job)


def _ours(aws: Aws, *queries: dict[str, Any]) -> tuple[Run, ...]:
    names = {
        row["TrainingJobName"]: None
        for query in queries
        for row in aws.pages("sagemaker", "ListTrainingJobs", "TrainingJobSummaries", query)
    }
    found = [run for run in (_unless_denied(aws, name) for name in names) if run is not None and run.is_ours]
    return tuple(sorted(found, key=lambda run: run.created, reverse=True))


def _unless_denied(aws: Aws, name: str) -> Run | None:
    """The training job, or None if it is somebody's that we may not look at."""
    try:
        return find(aws, name)
    except AwsError as error:
        if error.aws_code not in DENIED:
            raise
        return None


def newest(aws: Aws, job: str | None, verb: str, now: datetime) -> Run:
    """The last start of `job`.  Raises SettingsError with those there are."""
    if job is None:
        raise SettingsError(f"which job? python -m launch.sagemaker {verb} JOB.  {_there_are(recent(aws, now))}")
    check_job_name(job)
    if runs := of_job(aws, job):
        return runs[0]
    there = recent(aws, now)
    near = did_you_mean(job, sorted({run.job for run in there}))
    raise SettingsError(f"no job {job!r} in {aws.region}{near or '.'} {_there_are(there)} See --region, too.")


def _there_are(runs: tuple[Run, ...]) -> str:
    names = list(dict.fromkeys(run.job for run in runs))
    return f"Of the last day there are: {', '.join(names)}." if names else "There is none of the last day."
