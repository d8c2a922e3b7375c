"""The status of one job or all jobs of a region, as text: cost, time left, progress, outcome.  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from launch.aws.progress import in_words, pace_in_words
from launch.core.clock import duration, minute
from launch.core.jobs import Overview, State, Summary
from launch.core.metrics import values_of
from launch.core.price import usd
from launch.core.terminal import table
from launch.core.training.options import OUR_EPOCHS
from launch.sagemaker.names import command
from launch.sagemaker.outcome import outcome_of
from launch.sagemaker.training_job import STOPPING, TrainingJob
from trainer.contract import SAGEMAKER_HYPERPARAMETER
from trainer.outcome import Outcome
from trainer.script.pace import Pace


def all_as_text(training_jobs: Sequence[TrainingJob], region: str, now: datetime) -> str:
    """A table with a row per training job."""
    if not training_jobs:
        return "\n".join(
            [
                f"no job in {region} in the last day.  For an older one, and for the price of a new one:",
                f"  {command('status', 'JOB', region)}",
                "  python -m launch.sagemaker --dry-run",
            ]
        )
    headings = ("job", "status", "machines", "age", "USD/hour", "USD so far", "time limit")
    rows = [_row(one, now) for one in training_jobs]
    hourly = sum(one.usd_per_hour_now for one in training_jobs)
    return "\n".join([table(headings, rows), "", f"{usd(hourly)} per hour in {region}"])


def overview(training_jobs: Sequence[TrainingJob], region: str, now: datetime) -> Overview:
    """all_as_text(), also for programs."""
    return Overview(all_as_text(training_jobs, region, now), [summary_of(one, now) for one in training_jobs])


def summary_of(training_job: TrainingJob, now: datetime) -> Summary:
    """The job for programs, with the outcome as far as SageMaker knows it."""
    known = Summary(
        training_job.job,
        "stopping" if training_job.status == STOPPING else "running" if training_job.started else "waiting",
        region=training_job.region,
        nodes=training_job.nodes,
        started=training_job.created,
        ended=training_job.ended,
        deadline=training_job.deadline,
        usd_per_hour=training_job.usd_per_hour_now,
        usd=training_job.cost(now),
        folder=training_job.folder.uri if training_job.folder else None,
    )
    return known.ended_with(outcome_of(training_job, now)) if training_job.is_over else known


def _row(training_job: TrainingJob, now: datetime) -> tuple[str, ...]:
    return (
        training_job.start,
        training_job.status if training_job.is_over else training_job.detail,
        training_job.machines,
        duration(now - training_job.created),
        f"{training_job.usd_per_hour_now:.2f}",
        f"{training_job.cost(now):.2f}",
        _time_left(training_job, now),
    )


def _time_left(training_job: TrainingJob, now: datetime) -> str:
    deadline = training_job.deadline
    if deadline is None or training_job.is_over:
        return "-"
    return f"{duration(deadline - now)} left" if deadline > now else "passed"


def job_state(
    training_job: TrainingJob,
    epoch: Mapping[str, Any] | None,
    now: datetime,
    recorded: Outcome | None = None,
    pace: Pace | None = None,
) -> State:
    """The full status of one job, with the next commands.

    epoch: its newest metrics; recorded: its outcome.json; pace: the progress of a script.
    """
    rows = [*_progress(training_job, epoch, pace, now), *_queue(training_job)]
    rows += [*_money(training_job, now), *_places(training_job)]
    summary = summary_of(training_job, now)
    summary = replace(summary, metrics=values_of(epoch) if epoch else None, next=tuple(_next(training_job)))
    summary = summary.ended_with(recorded) if recorded else summary
    return State(summary, _headline(training_job, now, recorded), rows, phases=training_job.phases)


def _headline(training_job: TrainingJob, now: datetime, recorded: Outcome | None) -> str:
    title = f"job {training_job.job} in {training_job.region}"
    if training_job.start != training_job.job:
        title += f" (as {training_job.start})"
    if training_job.waits and training_job.queued and not training_job.is_over:
        return f"{title}: {training_job.queued.in_words}, for {duration(now - training_job.created)}"
    if not training_job.is_over:
        return f"{title}: {training_job.detail}, started {duration(now - training_job.created)} ago"
    ended = f" {duration(now - training_job.ended)} ago" if training_job.ended else ""
    outcome = recorded or outcome_of(training_job, now)
    return f"{title} ended{ended}: {outcome.reason or 'the training is done'}"


def _progress(
    training_job: TrainingJob, epoch: Mapping[str, Any] | None, pace: Pace | None, now: datetime
) -> Iterator[tuple[str, str]]:
    if training_job.transitions and training_job.transitions[-1][1]:
        yield "SageMaker", training_job.transitions[-1][1]
    if epoch is not None:
        yield "training", in_words(epoch, _epochs(training_job))
    if pace is not None:
        yield "progress", pace_in_words(pace, None if training_job.is_over else now.timestamp())


def _queue(training_job: TrainingJob) -> Iterator[tuple[str, str]]:
    queued = training_job.queued
    if queued is None or not queued.id:
        return
    yield "queue", f"{queued.queue} ({queued.status}{': ' + queued.reason if queued.reason else ''})"
    last = len(queued.attempts)
    for number, name in enumerate(queued.attempts, 1):
        is_now = number == last and not training_job.waits and not training_job.is_over
        yield f"attempt {number}", f"{name}{', runs' if is_now else ''}"


def _money(training_job: TrainingJob, now: datetime) -> Iterator[tuple[str, str]]:
    is_at_most = training_job.is_spot and not training_job.is_over
    yield "machines", training_job.machines
    yield "cost", f"{'at most' if is_at_most else 'about'} {usd(training_job.cost(now))} so far"
    if training_job.deadline and not training_job.is_over:
        yield "time limit", minute(training_job.deadline)
    if training_job.pool is not None:
        yield "warm pool", training_job.pool


def _places(training_job: TrainingJob) -> Iterator[tuple[str, str]]:
    if training_job.checkpoints:
        yield "checkpoints", training_job.checkpoints
    if training_job.model and training_job.is_over:
        yield "result", training_job.model
    if training_job.owner:
        yield "started by", training_job.owner
    yield "console", training_job.console


def _epochs(training_job: TrainingJob) -> str:
    """The number of epochs, from the job's settings."""
    settings = training_job.hyperparameters
    usual = "?" if SAGEMAKER_HYPERPARAMETER in settings else OUR_EPOCHS
    return settings.get("epochs", usual).strip('"')


def _next(training_job: TrainingJob) -> Iterator[str]:
    job, region = training_job.job, training_job.region
    yield command("logs", job, region, *([] if training_job.is_over else ["--follow"]))
    yield command("fetch" if training_job.is_over else "attach", job, region)
    if not training_job.is_over or training_job.pool == "Available":
        yield command("stop", job, region)
