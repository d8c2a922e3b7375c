"""How the jobs of a region are, or one of them: money, time left, the training, how it ended.  Reads only."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from launch.core.clock import duration
from launch.core.price import usd
from launch.core.progress import in_words
from launch.core.tables import table
from launch.sagemaker.failure import console, verdict
from launch.sagemaker.runs import Run
from trainer.config import TrainConfig


def all_as_text(runs: Sequence[Run], region: str, now: datetime) -> str:
    """A row per training job."""
    if not runs:
        return (
            f"no job in {region} in the last day.  An older one is shown by its name: python -m launch.sagemaker "
            "status JOB; what a new one would cost: python -m launch.sagemaker --dry-run"
        )
    columns = ("job", "status", "machines", "age", "USD/hour", "USD so far", "time limit")
    rows = [_row(run, now) for run in runs]
    hourly = sum(rate(run) for run in runs)
    return "\n".join([table(columns, rows), "", f"{usd(hourly)} per hour in {region}"])


def rate(run: Run) -> float:
    """USD per hour that a training job costs now."""
    return run.usd_per_hour if (run.started and not run.is_over) or run.pool == "Available" else 0.0


def _row(run: Run, now: datetime) -> tuple[str, ...]:
    left = "-"
    if run.deadline and not run.is_over:
        left = duration(run.deadline - now) + " left" if run.deadline > now else "passed"
    return (
        run.name,
        run.status if run.is_over else run.detail,
        run.machines,
        duration(now - run.created),
        f"{rate(run):.2f}",
        f"{run.cost(now):.2f}",
        left,
    )


def as_text(run: Run, epoch: Mapping[str, Any] | None, now: datetime) -> str:
    """All about one job, and what to type next.  epoch: the newest line of its metrics."""
    rows = list(_facts(run, epoch, now))
    width = max(len(label) for label, _ in rows)
    lines = [_headline(run, now), "", *(f"  {label:<{width}}  {text}" for label, text in rows)]
    return "\n".join([*lines, "", "next:", *(f"  {command}" for command in _next(run))])


def _headline(run: Run, now: datetime) -> str:
    where = f"job {run.job} in {run.region}"
    where += f" (as {run.name})" if run.name != run.job else ""
    if not run.is_over:
        return f"{where}: {run.detail}, started {duration(now - run.created)} ago"
    since = f", since {duration(now - run.ended)}" if run.ended else ""
    return f"{where} is over{since}: {verdict(run).sentence}"


def _facts(run: Run, epoch: Mapping[str, Any] | None, now: datetime) -> Iterator[tuple[str, str]]:
    if run.said and run.said[-1][1]:
        yield "SageMaker", run.said[-1][1]
    if epoch is not None:
        yield "training", in_words(epoch, _epochs(run))
    yield "machines", run.machines
    yield "cost", f"{'at most' if run.is_spot and not run.is_over else 'about'} {usd(run.cost(now))} so far"
    if run.deadline and not run.is_over:
        yield "time limit", f"{run.deadline:%Y-%m-%d %H:%M} UTC"
    if run.pool is not None:
        yield "warm pool", run.pool
    if run.checkpoints:
        yield "checkpoints", run.checkpoints
    if run.model and run.is_over:
        yield "result", run.model
    yield "console", console(run)


def _epochs(run: Run) -> str:
    """How many there shall be, from the job's own settings."""
    default = str(TrainConfig.model_fields["epochs"].default)
    return run.hyperparameters.get("epochs", default).strip('"')


def _next(run: Run) -> Iterator[str]:
    def command(verb: str, *flags: str) -> str:
        return " ".join(["python -m launch.sagemaker", verb, run.job, *flags, "--region", run.region])

    yield command("logs", *([] if run.is_over else ["--follow"]))
    yield command("attach")
    if not run.is_over or run.pool == "Available":
        yield command("stop")
