"""Leaks: training jobs that cost money and should have ended."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from launch.aws.client import Aws
from launch.core.clock import duration
from launch.core.jobs import Leak
from launch.sagemaker import training_jobs
from launch.sagemaker.names import command
from launch.sagemaker.training_job import TrainingJob

# SageMaker may take this long to end a job past its limit and to upload its result.
ENDING = timedelta(hours=1)
COLUMNS = ("job", "region", "status", "machines", "age", "USD/hour", "why")


def leaks_of(training_jobs: Sequence[TrainingJob], now: datetime) -> tuple[Leak, ...]:
    """One entry for each of `training_jobs`, all of which cost money, leak or not.  Pure."""
    return tuple(_leak(one, now) for one in training_jobs)


def _leak(one: TrainingJob, now: datetime) -> Leak:
    is_leak, why = _why(one, now)
    row = (
        one.start,
        one.region,
        one.pool if one.is_over and one.pool else one.status,
        f"{one.nodes} x {one.instance_type}",
        duration(now - one.created),
        f"{one.usd_per_hour_now:.2f}",
        why,
    )
    return Leak(
        one.start, one.region, is_leak, why, one.usd_per_hour_now, (row,), (one.name,), one.is_start, resources=one
    )


def _why(training_job: TrainingJob, now: datetime) -> tuple[bool, str]:
    if training_job.tuning_job and not training_job.is_over:
        # A tuning job gives its own tags to its training jobs, under names of its own:
        # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateHyperParameterTuningJob.html, Tags
        return _is_late(training_job, now), f"of tuning job {training_job.tuning_job}"
    if not training_job.is_start:
        return True, f"not touched: its name is no start of {training_job.job!a}"
    if training_job.is_over:
        return True, "instances kept for the next job"
    if training_job.deadline is None:
        return False, f"waits in queue {training_job.queued.queue}" if training_job.queued else "waiting for instances"
    return (True, "past its time limit") if _is_late(training_job, now) else (False, "within its time limit")


def _is_late(training_job: TrainingJob, now: datetime) -> bool:
    return training_job.deadline is not None and now > training_job.deadline + ENDING


def jobs(aws: Aws, now: datetime) -> tuple[str, ...]:
    """The jobs of a region that cost money, each with the command that stops it.  Raises TrainerError."""
    return tuple(f"{one.start} in {aws.region} ({_remedy(one)})" for one in training_jobs.costing(aws, now))


def _remedy(training_job: TrainingJob) -> str:
    """The command that stops the job; not if `stop` would skip it, as any training job may have such tags."""
    if not training_job.is_start:
        return "its tags are not the toolkit's: end it by hand"
    return command("stop", training_job.job, training_job.region)
