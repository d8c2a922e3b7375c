"""What the report says first, in words.  Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from launch.core.drawing.charts import TIMES, figure, signed
from launch.core.runs import Run
from launch.report.amdahl import Fit, fit
from launch.report.cost import cost
from launch.report.identity import counted, short, unit
from launch.report.largebatch import Comparison, compare
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


def find(runs: Sequence[Run], baseline: str | None = None) -> Findings:
    """What `runs` show.  baseline: the name of the run to compare with.  Raises SettingsError where it is not there."""
    found = named(points(runs))
    base = _baseline(found, baseline, runs) if baseline else None
    several = scaling(found, base)
    fits = [(one, fitted) for one in several if (fitted := fit(_times(one)))]
    return Findings(tuple(runs), tuple(found), tuple(several), tuple(fits), compare(found, base), unit(runs))


def title(found: Findings) -> str:
    """The main finding, in one line."""
    best = found.best
    if best and (fast := speedup(best.points[-1], best.base)):
        last, times = best.points[-1], fast.value / best.base.replicas
        base, count = counted(best.base.replicas, found.unit), counted(last.replicas, found.unit)
        if times < 1:
            return f"{count} are slower than {base}: {figure(times)}{TIMES} its speed"
        share = 100 * fast.value / last.replicas
        return f"{count} train {figure(times)}{TIMES} as fast as {base}: {share:.0f}% efficiency"
    many = counted(len(found.runs), "run")
    if not found.points:
        return f"Nothing was measured: {many}, none with an epoch"
    most, least = (pick(point.replicas for point in found.points) for pick in (max, min))
    return f"{many} on {counted(most, found.unit)}" if most == least else f"{many} on {least} to {most} {found.unit}s"


def sentences(found: Findings) -> list[str]:
    """What matters, most important first."""
    return [
        *_of_scaling(found),
        *_of_communication(found),
        *_of_learning(found),
        *_of_cost(found),
        *_of_failures(found),
    ]


def _of_scaling(found: Findings) -> list[str]:
    best, said = found.best, []
    if best is None:
        return [f"No scaling can be shown: that needs the same settings on at least two numbers of {found.unit}s."]
    last = best.points[-1]
    fast, share, before = speedup(last, best.base), efficiency(last, best.base), best.base.images_per_s
    if fast and share and before and last.images_per_s:
        said.append(
            f"Best series, {best.title(found.unit)}: {figure(before.value)} images/s on "
            f"{counted(best.base.replicas, found.unit)}, {figure(last.images_per_s.value)} on {last.replicas}; "
            f"speedup {figure(fast.value)}, efficiency {share.value:.0f}%{_taking(best, found.unit)}."
        )
    fitted = next((fitted for one, fitted in found.fits if one is best), None)
    if fitted:
        said.append(_amdahl(fitted, found.unit))
    return said


def _taking(one: Series, unit: str) -> str:
    """What a speedup over one GPU rests on, where no run had one."""
    count = one.base.replicas
    return "" if count == 1 else f", taking {counted(count, unit)} for {figure(count)}{TIMES}"


def _amdahl(fitted: Fit, unit: str) -> str:
    if fitted.serial == 0:
        text = "Amdahl's law finds no serial part in it: it scales as well as ideal, or better"
    elif math.isclose(fitted.serial, 1):
        text = "Amdahl's law finds nothing that spreads: more do not help"
    else:
        text = (
            f"Amdahl's law: {fitted.serial:.1%} of the work is serial, so no number of {unit}s is more than "
            f"{figure(fitted.limit)}{TIMES} as fast as one"
        )
    if fitted.is_checked:
        return f"{text} (fitted to {fitted.counts} numbers of {unit}s, off by at most {fitted.worst:.1%})."
    return f"{text} (through two numbers of {unit}s a curve always fits, so nothing checks it)."


def _of_communication(found: Findings) -> list[str]:
    shares = []
    for point in found.points:
        talking, step = point.measured("communication_ms"), point.measured("step_ms")
        if point.replicas > 1 and talking and step and step.value and talking.value:
            shares.append((talking.value / step.value, point))
    if not shares:
        return []
    least, most = min(shares, key=lambda pair: pair[0]), max(shares, key=lambda pair: pair[0])
    if f"{least[0]:.0%}" == f"{most[0]:.0%}":
        return [f"Communication takes {least[0]:.0%} of an update."]
    return [
        f"Communication takes {least[0]:.0%} of an update ({_point(least[1], found.unit)}) to {most[0]:.0%} "
        f"({_point(most[1], found.unit)})."
    ]


def _of_learning(found: Findings) -> list[str]:
    scored = [(end.value, point) for point in found.points if (end := point.ended_with("eval_top1"))]
    if not scored:
        return []
    best = max(scored, key=lambda pair: pair[0])
    said = [f"Best final test accuracy: {best[0]:.1%} ({_point(best[1], found.unit)})."]
    if found.compared and len(found.compared.trials) > 1:
        zero = found.compared.baseline
        largest = max(trial.per_update for trial in found.compared.trials)
        if largest > zero.per_update:
            at = [trial for trial in found.compared.trials if trial.per_update == largest]
            top, low = max(at, key=lambda t: t.gap), min(at, key=lambda t: t.gap)
            text = f"With {largest:,} images per update, {top.recipe} comes to {signed(top.gap)} points"
            also = f", {low.recipe} to {signed(low.gap)}" if low is not top else ""
            said.append(f"{text}{also}, against {zero.accuracy.value:.1f}% with {zero.per_update:,}.")
    return said


def _of_cost(found: Findings) -> list[str]:
    costs = [one for point in found.points if (one := cost(point)) and one.per_epoch]
    if not costs:
        return []
    cheap = min(costs, key=lambda one: one.per_epoch.value if one.per_epoch else math.inf)
    assert cheap.per_epoch
    said = [f"Cheapest epoch: {figure(cheap.per_epoch.value)} USD ({_point(cheap.point, found.unit)})."]
    scored = [one for one in costs if one.per_accuracy]
    if scored:
        best = min(scored, key=lambda one: one.per_accuracy.value if one.per_accuracy else math.inf)
        assert best.per_accuracy
        said.append(
            f"Cheapest point of accuracy: {figure(best.per_accuracy.value)} USD ({_point(best.point, found.unit)})."
        )
    return said


def _of_failures(found: Findings) -> list[str]:
    failed = [run for run in found.runs if run.state == "failed"]
    if not failed:
        return []
    return [f"{counted(len(failed), 'run')} of {len(found.runs)} failed; the table of runs says why."]


def _point(point: Point, unit: str) -> str:
    return f"{point.label}, {point.replicas} {TIMES} {point.per_gpu:,} images per {short(unit)}"


def _top(one: Series) -> float:
    found = speedup(one.points[-1], one.base)
    return found.value if found else 0.0


def _times(one: Series) -> list[tuple[int, float]]:
    """Of the same work: the reciprocal of the images per second."""
    return [(p.replicas, 1 / p.images_per_s.value) for p in one.points if p.images_per_s and p.images_per_s.value]


def _baseline(found: Sequence[Point], name: str, runs: Sequence[Run]) -> Point:
    for point in found:
        if any(run.name == name for run in point.runs):
            return point
    names = [run.name for run in runs]
    if name in names:
        raise SettingsError(f"--baseline {name} has no measured epoch; name a run that has, or leave it out.")
    raise SettingsError(f"--baseline {name}: no run has that name{did_you_mean(name, names) or '.'}")
