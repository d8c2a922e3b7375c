"""What runs cost: an epoch, the whole, a point of accuracy, and a target accuracy; None without a price.  Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from launch.core.drawing.charts import Measured
from launch.core.runs import Run, seconds_of
from launch.report.points import Point, accuracy_over, final
from launch.report.repeats import median_of


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
    """A target accuracy at a point.  runs: of how many, by how many; s, usd: from the start to the evaluation."""

    point: Point
    runs: int
    s: Measured
    usd: Measured | None


def reached(points: Iterable[Point], target: float) -> list[Reached]:
    """The points with a run that reached `target` % of test accuracy, the fastest first."""
    found = []
    for point in points:
        ways = [way for run in point.runs if (way := to_target(run, target))]
        if seconds := median_of(s for s, _ in ways):
            found.append(Reached(point, len(ways), seconds, median_of(usd for _, usd in ways)))
    return sorted(found, key=lambda one: one.s.value)


def to_target(run: Run, target: float) -> tuple[float, float | None] | None:
    """(seconds, USD) from the start to the first evaluation with `target` %; None for a run that never got there.

    What is not in an epoch, such as initialization, is taken to come before the first.
    """
    ends = [end for end, _, accuracy in accuracy_over(run) if accuracy >= target]
    if not ends:
        return None
    seconds = ends[0] + run.whole_s - sum(map(seconds_of, run.epochs))
    usd = run.whole_usd
    return seconds, None if usd is None else usd * seconds / run.whole_s
