"""The main results in sentences.  Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from launch.core.drawing.charts import TIMES, figure
from launch.core.runs import Run
from launch.report.amdahl import Fit, fit
from launch.report.cost import cost
from launch.report.identity import counted, short, unit
from launch.report.largebatch import Comparison, Trial, compare
from launch.report.points import Point, points
from launch.report.series import Series, efficiency, named, scaling, speedup
from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean


@dataclass(frozen=True)
class Findings:
    """Everything that is computed from the runs; unit: GPU or CPU rank."""

    runs: tuple[Run, ...]
    points: tuple[Point, ...]
    series: tuple[Series, ...]
    fits: tuple[tuple[Series, Fit], ...]
    compared: Comparison | None
    unit: str

    @property
    def best(self) -> Series | None:
        """The series that goes to the most GPUs, and of those the fastest."""
        return max(self.series, key=lambda one: (one.counts[-1], _top(one)), default=None)

    def fit_of(self, series: Series) -> Fit | None:
        """Amdahl's law as fitted to `series`."""
        return next((fit for one, fit in self.fits if one is series), None)


def find(runs: Sequence[Run], baseline: str | None = None) -> Findings:
    """Findings in `runs`.  baseline: the name of the run to compare to.  Raises SettingsError for an unknown one."""
    all_points = named(points(runs))
    base = _baseline(all_points, baseline, runs) if baseline else None
    series = scaling(all_points, base)
    fits = [(one, fitted) for one in series if (fitted := fit(_times(one)))]
    return Findings(tuple(runs), tuple(all_points), tuple(series), tuple(fits), compare(all_points, base), unit(runs))


def title(results: Findings) -> str:
    """The main finding, in one line."""
    best = results.best
    if best and (fast := speedup(best.points[-1], best.base)):
        last, times = best.points[-1], fast.value / best.base.replicas
        base, count = counted(best.base.replicas, results.unit), counted(last.replicas, results.unit)
        if times < 1:
            return f"{count} are slower than {base}: {figure(times)}{TIMES} its speed"
        share = 100 * fast.value / last.replicas
        return f"{count} train {figure(times)}{TIMES} as fast as {base}: {share:.0f}% efficiency"
    many = counted(len(results.runs), "run")
    if not results.points:
        return f"Nothing was measured: {many}, none with an epoch"
    most, least = (pick(point.replicas for point in results.points) for pick in (max, min))
    return (
        f"{many} on {counted(most, results.unit)}" if most == least else f"{many} on {least} to {most} {results.unit}s"
    )


def sentences(results: Findings) -> list[str]:
    """The findings in sentences, the most important first."""
    return [
        *_of_scaling(results),
        *_of_communication(results),
        *_of_learning(results),
        *_of_cost(results),
        *_of_failures(results),
    ]


def _of_scaling(results: Findings) -> list[str]:
    best = results.best
    if best is None:
        return [f"No scaling can be shown: that needs the same settings on at least two numbers of {results.unit}s."]
    lines, last = [], best.points[-1]
    fast, share, before = speedup(last, best.base), efficiency(last, best.base), best.base.images_per_s
    if fast and share and before and last.images_per_s:
        lines.append(
            f"Best series, {best.title(results.unit)}: {figure(before.value)} images/s on "
            f"{counted(best.base.replicas, results.unit)}, {figure(last.images_per_s.value)} on {last.replicas}; "
            f"speedup {figure(fast.value)}, efficiency {share.value:.0f}%{_taking(best, results.unit)}."
        )
    if fitted := results.fit_of(best):
        lines.append(_amdahl(fitted, results.unit))
    return lines


def _taking(one: Series, unit: str) -> str:
    """The assumption behind a speedup over one GPU, where no run had one."""
    count = one.base.replicas
    return "" if count == 1 else f", taking {counted(count, unit)} for {figure(count)}{TIMES}"


def _amdahl(fitted: Fit, unit: str) -> str:
    if fitted.serial == 0:
        text = "Amdahl's law finds no serial part: it scales ideally, or better"
    elif math.isclose(fitted.serial, 1):
        text = "Amdahl's law finds no parallel part: more of them do not help"
    else:
        text = (
            f"Amdahl's law: {fitted.serial:.1%} of the work is serial, so no number of {unit}s is more than "
            f"{figure(fitted.limit)}{TIMES} as fast as one"
        )
    if fitted.is_checked:
        return f"{text} (fitted to {fitted.counts} numbers of {unit}s, off by at most {fitted.worst:.1%})."
    return f"{text} (a curve through two numbers of {unit}s always fits, so this is not checked)."


def _of_communication(results: Findings) -> list[str]:
    shares = []
    for point in results.points:
        talking, step = point.measured("communication_ms"), point.measured("step_ms")
        if point.replicas > 1 and talking and step and step.value and talking.value:
            shares.append((talking.value / step.value, point))
    if not shares:
        return []
    least, most = min(shares, key=lambda pair: pair[0]), max(shares, key=lambda pair: pair[0])
    if f"{least[0]:.0%}" == f"{most[0]:.0%}":
        return [f"Communication takes {least[0]:.0%} of an update."]
    return [
        f"Communication takes {least[0]:.0%} of an update ({_point(least[1], results.unit)}) to {most[0]:.0%} "
        f"({_point(most[1], results.unit)})."
    ]


def _of_learning(results: Findings) -> list[str]:
    scored = [(end.value, point) for point in results.points if (end := point.ended_with("eval_top1"))]
    if not scored:
        return []
    accuracy, point = max(scored, key=lambda pair: pair[0])
    lines = [f"Best final test accuracy: {accuracy:.1%} ({_point(point, results.unit)})."]
    if results.compared:
        lines += _of_large_batches(results.compared)
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
    return [f"With {largest:,} images per update, {' and '.join(texts)}, {against}."]


def _gap(trial: Trial) -> str:
    """'loses 2.2 points', 'gains 0.4 points' or 'has the same accuracy'."""
    points = f"{abs(trial.gap):.1f}"
    if points == "0.0":
        return "has the same accuracy"
    return f"{'gains' if trial.gap > 0 else 'loses'} {points} points"


def _of_cost(results: Findings) -> list[str]:
    costs = [one for point in results.points if (one := cost(point)) and one.per_epoch]
    epochs = [(one.per_epoch.value, one.point) for one in costs if one.per_epoch]
    accuracies = [(one.per_accuracy.value, one.point) for one in costs if one.per_accuracy]
    return [
        *_cheapest("Cheapest epoch", epochs, results.unit),
        *_cheapest("Cheapest point of accuracy", accuracies, results.unit),
    ]


def _cheapest(name: str, prices: Sequence[tuple[float, Point]], unit: str) -> list[str]:
    if not prices:
        return []
    amount, point = min(prices, key=lambda pair: pair[0])
    return [f"{name}: {figure(amount)} USD ({_point(point, unit)})."]


def _of_failures(results: Findings) -> list[str]:
    failed = [run for run in results.runs if run.state == "failed"]
    if not failed:
        return []
    return [f"{counted(len(failed), 'run')} of {len(results.runs)} failed; see the table of runs for the reasons."]


def _point(point: Point, unit: str) -> str:
    return f"{point.label}, {point.replicas} {TIMES} {point.per_gpu:,} images per {short(unit)}"


def _top(one: Series) -> float:
    fastest = speedup(one.points[-1], one.base)
    return fastest.value if fastest else 0.0


def _times(one: Series) -> list[tuple[int, float]]:
    """Of the same work: the reciprocal of the images per second."""
    return [(p.replicas, 1 / p.images_per_s.value) for p in one.points if p.images_per_s and p.images_per_s.value]


def _baseline(results: Sequence[Point], name: str, runs: Sequence[Run]) -> Point:
    for point in results:
        if any(run.name == name for run in point.runs):
            return point
    names = [run.name for run in runs]
    if name in names:
        raise SettingsError(f"--baseline {name} has no measured epoch; name a run that has, or leave it out.")
    raise SettingsError(f"--baseline {name}: no run has that name{did_you_mean(name, names) or '.'}")
