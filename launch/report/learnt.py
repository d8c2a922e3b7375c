"""What was learnt, in sentences: the best accuracy, and what large batches cost.  Pure."""

from collections.abc import Sequence

from launch.core.drawing.charts import TIMES
from launch.report.identity import short
from launch.report.largebatch import Comparison, Trial
from launch.report.points import Point

# Points of accuracy below which a gap between single runs is marked: a margin, for seeds differ too.
SEEDS_DIFFER = 1.0


def learning(points: Sequence[Point], compared: Comparison | None, unit: str) -> list[str]:
    """The best accuracy, and what large batches cost of it."""
    scored = [(end.value, point) for point in points if (end := point.ended_with("eval_top1"))]
    if not scored:
        return []
    accuracy, point = max(scored, key=lambda pair: pair[0])
    lines = [f"Best final eval accuracy: {accuracy:.1%} ({called(point, unit)})."]
    if compared:
        lines += _of_large_batches(compared)
    return lines


def _of_large_batches(compared: Comparison) -> list[str]:
    """The best and the worst recipe at the largest global batch, against the baseline."""
    zero = compared.baseline
    largest = max(trial.per_update for trial in compared.trials)
    if largest <= zero.per_update:
        return []
    trials = sorted((trial for trial in compared.trials if trial.per_update == largest), key=lambda one: -one.gap)
    texts = [f"{trials[0].recipe} {_gap(trials[0])}"]
    if len(trials) > 1:
        texts.append(f"{trials[-1].recipe} {_gap(trials[-1])}")
    against = f"against {zero.accuracy.value:.1f}% with {zero.per_update:,}"
    return [f"With {largest:,} images per update, {' and '.join(texts)}, {against}.{_caution(zero, trials)}"]


def _caution(zero: Trial, trials: Sequence[Trial]) -> str:
    """What a small gap of the best or the worst trial to the baseline rests on, where that is little."""
    told = [trials[0], trials[-1]]
    close = [trial for trial in told if abs(trial.gap) < SEEDS_DIFFER]
    is_single = any(sum(len(point.runs) for point in trial.points) == 1 for trial in (zero, *close))
    if close and is_single:
        return " Single runs: another seed may differ by as much."
    own = zero.accuracy
    if any(trial.accuracy.low <= own.high and own.low <= trial.accuracy.high for trial in told):
        return " With the ranges of their seeds the accuracies overlap: such a gap may be chance."
    return ""


def _gap(trial: Trial) -> str:
    """'loses 2.2 points', 'gains 0.4 points' or 'has the same accuracy'."""
    points = f"{abs(trial.gap):.1f}"
    if points == "0.0":
        return "has the same accuracy"
    return f"{'gains' if trial.gap > 0 else 'loses'} {points} points"


def called(point: Point, unit: str) -> str:
    """A point in a sentence: 'ddp, 8 x 100 images per GPU'."""
    return f"{point.label}, {point.replicas} {TIMES} {point.per_gpu:,} images per {short(unit)}"
