"""The charts of how a training scales: over the number of GPUs.  Each is a chart, or the sentence why there is none."""

from collections.abc import Callable, Sequence

from launch.core.drawing.charts import TIMES, Chart, Line, Lines, Measured, figure, lines_of
from launch.report.amdahl import Fit
from launch.report.identity import short
from launch.report.points import Point
from launch.report.series import Series, efficiency, speedup

FITS = 4  # drawn at most
BEYOND = 8  # how many times the measured number of GPUs a fitted curve goes on

Reading = Callable[[Point, Point], Measured | None]
NO_SERIES = "needs the same settings on at least two numbers of {unit}s"


def all_scaling(found: Sequence[Series], fits: Sequence[tuple[Series, Fit]], unit: str) -> list[Chart | str]:
    return [
        time_per_epoch(found, unit),
        speedups(found, unit),
        efficiencies(found, unit),
        weak_scaling(found, unit),
        amdahl(fits, unit),
    ]


def time_per_epoch(found: Sequence[Series], unit: str) -> Chart | str:
    lines, counts = _lines(found, lambda point, _: point.measured("epoch_s"), unit)
    if not lines:
        return f"time per epoch: {NO_SERIES.format(unit=unit)}."
    shown, note = lines_of(lines)
    ideals = tuple(_ideal(line, lambda first, n: first[1].value * first[0] / n) for line in shown)
    return Lines("time_per_epoch", "Time per epoch", f"{unit}s", "time per epoch (s)", shown, ideals, "ideal: 1/n",
                 x_ticks=counts, is_log_y=True, note=note)  # fmt: skip


def speedups(found: Sequence[Series], unit: str) -> Chart | str:
    lines, counts = _lines(found, speedup, unit)
    if not lines:
        return f"speedup: {NO_SERIES.format(unit=unit)}."
    shown, note = lines_of(lines, _without_one(found, unit))
    ideal = tuple((count, count) for count in counts)
    return Lines("speedup", "Speedup", f"{unit}s", f"speedup over one {short(unit)} ({TIMES})", shown, (ideal,),
                 x_ticks=counts, is_log_y=True, is_doubling_y=True, note=note)  # fmt: skip


def efficiencies(found: Sequence[Series], unit: str) -> Chart | str:
    lines, counts = _lines(found, efficiency, unit)
    if not lines:
        return f"efficiency: {NO_SERIES.format(unit=unit)}."
    shown, note = lines_of(lines, _without_one(found, unit))
    ideal = tuple((count, 100.0) for count in counts)
    return Lines("efficiency", "Parallel efficiency", f"{unit}s", "efficiency (% of ideal)", shown, (ideal,),
                 x_ticks=counts, from_zero=True, note=note)  # fmt: skip


def weak_scaling(found: Sequence[Series], unit: str) -> Chart | str:
    weak = [one for one in found if one.kind == "weak"]
    lines, counts = _lines(weak, lambda point, _: point.measured("step_ms"), unit)
    if not lines:
        return f"weak scaling: needs the same batch per {short(unit)} on at least two numbers of {unit}s."
    shown, note = lines_of(lines)
    ideals = tuple(_ideal(line, lambda first, _: first[1].value) for line in shown)
    return Lines("weak_scaling", f"Weak scaling: a fixed batch per {short(unit)}", f"{unit}s", "time per update (ms)",
                 shown, ideals, "ideal: constant", x_ticks=counts, from_zero=True, note=note)  # fmt: skip


def amdahl(fits: Sequence[tuple[Series, Fit]], unit: str) -> Chart | str:
    if not fits:
        return f"Amdahl's law: {NO_SERIES.format(unit=unit)}."
    lines: list[Line] = []
    most = max(one.counts[-1] for one, _ in fits)
    counts = _doubled(most * BEYOND)
    fitted = fits[:FITS]
    for one, fit in fitted:
        measured = tuple((p.replicas, found) for p in one.points if (found := speedup(p, one.base)))
        lines.append(Line(f"{one.title(unit)}: limit {_limit(fit)}", measured, is_joined=False))
        finely = [2 ** (step / 4) for step in range(4 * len(counts) - 3)]
        curve = tuple((count, Measured(*[_relative(fit, one, count)] * 3)) for count in finely)
        lines.append(Line("", curve, is_curve=True))
    note = f"{len(fitted)} of {len(fits)} series; all are in the table." if len(fitted) < len(fits) else ""
    if not all(fit.is_checked for _, fit in fits):
        note = f"Through two numbers of {unit}s a curve always fits: nothing checks it. {note}".strip()
    note = f"{note} {_without_one([one for one, _ in fitted], unit)}".strip()
    ideal = tuple((count, float(count)) for count in counts)
    y_label = f"speedup over one {short(unit)} ({TIMES})"
    return Lines("amdahl", "Amdahl's law, fitted", f"{unit}s", y_label, tuple(lines), (ideal,),
                 x_ticks=tuple(counts), is_log_y=True, is_doubling_y=True, note=note)  # fmt: skip


def _without_one(found: Sequence[Series], unit: str) -> str:
    """What a speedup over one GPU rests on, where no run had one."""
    if all(one.base.replicas == 1 for one in found):
        return ""
    return f"Without a run on one {short(unit)}: the fewest {unit}s of a series, or the baseline, count as ideal."


def _relative(fit: Fit, one: Series, count: float) -> float:
    """The fitted speedup over the same base that the measured ones have; the fit's times are s per image."""
    assert one.base.images_per_s
    return one.base.replicas / one.base.images_per_s.value / fit.time(count)


def _limit(fit: Fit) -> str:
    return "none seen" if fit.serial == 0 else f"{figure(fit.limit)}{TIMES}"


def _lines(found: Sequence[Series], read: Reading, unit: str) -> tuple[list[Line], tuple[float, ...]]:
    """A line for each series that has the number at two places; and all the places."""
    lines = []
    for one in found:
        places = tuple((float(p.replicas), value) for p in one.points if (value := read(p, one.base)))
        if len(places) > 1:
            lines.append(Line(one.title(unit), places))
    return lines, tuple(sorted({x for line in lines for x, _ in line.points}))


def _ideal(line: Line, at: Callable[[tuple[float, Measured], float], float]) -> tuple[tuple[float, float], ...]:
    return tuple((x, at(line.points[0], x)) for x, _ in line.points)


def _doubled(most: int) -> list[int]:
    """1, 2, 4, ... up to at least `most`."""
    return [2**power for power in range((most - 1).bit_length() + 1)]
