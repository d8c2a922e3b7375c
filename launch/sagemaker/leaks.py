"""What costs money in an account and should not: jobs past their time, machines kept for a job that never came.

Jobs are found by tag, also those of somebody else's launcher.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from launch.core.aws import Aws
from launch.core.clock import duration
from launch.core.price import usd
from launch.core.tables import table
from launch.sagemaker.runs import Run
from launch.sagemaker.status import rate
from launch.sagemaker.training_jobs import costing
from trainer.errors import TrainerError

# How long SageMaker may take to end a job that is past its limit, and to upload its result.
ENDING = timedelta(hours=1)

NONE = "no job costs anything, so nothing leaks"


@dataclass(frozen=True)
class Finding:
    """A training job that costs money.  why: words for the table."""

    run: Run
    is_leak: bool
    why: str


def judge(runs: Sequence[Run], now: datetime) -> tuple[Finding, ...]:
    """What of `runs`, which all cost money, is a leak.  Pure."""
    return tuple(Finding(run, *_why(run, now)) for run in runs)


def _why(run: Run, now: datetime) -> tuple[bool, str]:
    if run.is_over:
        return True, "machines kept for a next job"
    if run.deadline is None:
        return False, "waiting for machines"
    is_late = now > run.deadline + ENDING
    return (True, "past its time limit") if is_late else (False, "within its time limit")


def as_text(findings: Sequence[Finding], now: datetime) -> str:
    """A row per training job, and what all of them cost."""
    columns = ("job", "region", "status", "machines", "age", "USD/hour", "why")
    rows = [
        (
            found.run.name,
            found.run.region,
            found.run.pool if found.run.is_over and found.run.pool else found.run.status,
            f"{found.run.nodes} x {found.run.instance_type}",
            duration(now - found.run.created),
            f"{rate(found.run):.2f}",
            found.why,
        )
        for found in findings
    ]
    total = usd(sum(rate(found.run) for found in findings))
    leaking = usd(sum(rate(found.run) for found in findings if found.is_leak))
    return "\n".join([table(columns, rows), "", f"{total} per hour, of which leaks {leaking}"])


def look_everywhere(places: Sequence[Aws], now: datetime) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """What is in all `places`, one per region, asked at once; and a sentence for each that could not be asked."""
    with ThreadPoolExecutor(max_workers=max(1, len(places))) as pool:
        answers = list(pool.map(lambda aws: _look(aws, now), places))
    found = tuple(finding for findings, _ in answers for finding in findings)
    return found, tuple(sentence for _, sentence in answers if sentence)


def _look(aws: Aws, now: datetime) -> tuple[tuple[Finding, ...], str]:
    try:
        return judge(costing(aws), now), ""
    except TrainerError as error:
        return (), f"{aws.region} could not be asked: {error}"
