"""Costs of runs: per epoch, in total, per point of accuracy, and of a target accuracy; None without a price.  Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from launch.core.drawing.charts import Measured
from launch.core.runs import HOUR_S, Run, number, seconds_of
from launch.report.points import Point, final, median_of


@dataclass(frozen=True)
class Cost:
    """The costs of a point in USD."""

    point: Point
    per_epoch: Measured | None
    whole: Measured | None
    per_accuracy: Measured | None  # of the whole training, per percentage point of its eval accuracy


def priced(runs: Iterable[Run], usd_per_gpu_hour: float | None) -> list[Run]:
    """Give runs without a price the price of their GPUs."""
    if usd_per_gpu_hour is None:
        return list(runs)
    return [_priced(run, usd_per_gpu_hour) for run in runs]


def _priced(run: Run, usd_per_gpu_hour: float) -> Run:
    if run.usd_per_hour is not None or run.usd is not None or not run.replicas:
        return run
    hourly = usd_per_gpu_hour * run.replicas
    if all(_gpus(epoch) == run.replicas for epoch in run.epochs):
        return replace(run, usd_per_hour=hourly)
    # A run may be resumed on other GPUs, so each epoch counts its own.
    usd = usd_per_gpu_hour * _gpu_seconds(run, len(run.epochs)) / HOUR_S
    return replace(run, usd_per_hour=hourly, usd=usd)


def _gpus(epoch: Mapping[str, Any]) -> float:
    return number(epoch, "replicas") or number(epoch, "world_size") or 1.0


def _gpu_seconds(run: Run, epochs: int) -> float:
    """GPU seconds of the first `epochs` epochs, and of time outside of epochs, which is assumed to come first."""
    rest_s = run.whole_s - sum(map(seconds_of, run.epochs))
    return rest_s * _gpus(run.epochs[0]) + sum(seconds_of(one) * _gpus(one) for one in run.epochs[:epochs])


def cost(point: Point) -> Cost | None:
    """The costs of a point; None if its runs have no price."""
    if all(run.whole_usd is None for run in point.runs):
        return None
    return Cost(
        point,
        median_of(run.usd_per_epoch for run in point.runs),
        median_of(run.whole_usd for run in point.runs),
        median_of(per_accuracy(run) for run in point.runs),
    )


def per_accuracy(run: Run) -> float | None:
    """USD per percentage point of the accuracy that the run ended with."""
    usd, accuracy = run.whole_usd, final(run, "eval_top1")
    return usd / (100 * accuracy) if usd is not None and accuracy else None


@dataclass(frozen=True)
class Reached:
    """When a point reached the target accuracy."""

    point: Point
    runs: int  # how many of its runs reached it
    s: Measured  # from the start to that evaluation
    usd: Measured | None  # from the start to that evaluation


def reached(points: Iterable[Point], target: float) -> list[Reached]:
    """The points with a run that reached `target` % of eval accuracy, the fastest first."""
    found = []
    for point in points:
        efforts = [effort for run in point.runs if (effort := to_target(run, target))]
        if seconds := median_of(s for s, _ in efforts):
            found.append(Reached(point, len(efforts), seconds, median_of(usd for _, usd in efforts)))
    return sorted(found, key=lambda one: one.s.value)


def to_target(run: Run, target: float) -> tuple[float, float | None] | None:
    """(seconds, USD) from the start to the first evaluation with `target` %; None if it was not reached.

    Time outside of epochs, such as initialization, is assumed to come first.
    """
    whole, usd = _gpu_seconds(run, len(run.epochs)) if run.epochs else 0.0, run.whole_usd
    for count, epoch in enumerate(run.epochs, 1):
        accuracy = number(epoch, "eval_top1")
        if accuracy is not None and 100 * accuracy >= target:
            after_s = sum(map(seconds_of, run.epochs[count:]))
            share = _gpu_seconds(run, count) / whole if whole else None  # 0 if all epochs took no time
            return run.whole_s - after_s, None if usd is None or share is None else usd * share
    return None
