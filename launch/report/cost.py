"""The cost of runs: per epoch, as a whole, and per point of accuracy; in USD, None without a price.  Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from launch.core.drawing.charts import Measured
from launch.core.runs import Run
from launch.report.points import Point, final, of, seconds_of

HOUR_S = 3600


@dataclass(frozen=True)
class Cost:
    """Of one point.  per_accuracy: USD of the whole training per percentage point of its test accuracy."""

    point: Point
    per_epoch: Measured | None
    whole: Measured | None
    per_accuracy: Measured | None


def priced(runs: Iterable[Run], usd_per_gpu_hour: float | None) -> list[Run]:
    """The runs; those without a price get that of their GPUs."""
    if usd_per_gpu_hour is None:
        return list(runs)
    return [_priced(run, usd_per_gpu_hour) for run in runs]


def _priced(run: Run, usd_per_gpu_hour: float) -> Run:
    if run.usd_per_hour is not None or run.usd is not None or not run.replicas:
        return run
    return replace(run, usd_per_hour=usd_per_gpu_hour * run.replicas)


def cost(point: Point) -> Cost | None:
    """None for a point whose runs have no price."""
    if all(whole(run) is None for run in point.runs):
        return None
    return Cost(point, *(of([amount(run) for run in point.runs]) for amount in (per_epoch, whole, per_accuracy)))


def per_epoch(run: Run) -> float | None:
    """USD of a steady epoch with its evaluation; of a run whose price per hour is unknown, an equal share."""
    if run.usd_per_hour is not None and run.epochs:
        return run.usd_per_hour * median(seconds_of(epoch) for epoch in run.steady) / HOUR_S
    return run.usd / len(run.epochs) if run.usd is not None and run.epochs else None


def whole(run: Run) -> float | None:
    """USD from start to end, as billed where that is known."""
    if run.usd is not None:
        return run.usd
    if run.usd_per_hour is None:
        return None
    seconds = run.seconds if run.seconds is not None else sum(map(seconds_of, run.epochs))
    return run.usd_per_hour * seconds / HOUR_S


def per_accuracy(run: Run) -> float | None:
    """USD per percentage point of the accuracy that the run ended with."""
    usd, accuracy = whole(run), final(run, "eval_top1")
    return usd / (100 * accuracy) if usd is not None and accuracy else None
