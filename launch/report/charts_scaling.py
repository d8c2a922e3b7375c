"""The charts of how a training scales with the number of GPUs.  Each is a chart, or the sentence why there is none."""

import math
from collections.abc import Callable, Sequence

from launch.core.drawing.charts import TIMES, Chart, Line, Lines, Measured, exactly, figure, lines_of
from launch.core.estimate.amdahl import MISFIT
from launch.report.identity import short
from launch.report.laws import Law, amdahls, gustafsons, limit
from launch.report.points import Point
from launch.report.series import Series, efficiency, speedup

FITS = 4  # drawn at most
BEYOND = 8  # times the largest measured number of GPUs: where a fitted curve ends

Reading = Callable[[Point, Point], Measured | None]
NO_SERIES = "needs the same settings on at least two numbers of {unit}s"


def all_scaling(series: Sequence[Series], laws: Sequence[tuple[Series, Law]], unit: str) -> list[Chart | str]:
    return [
        time_per_epoch(series, unit),
        speedups(series, unit),
        efficiencies(series, unit),
        weak_scaling(series, unit),
        amdahl(amdahls(laws), unit),
        gustafson(gustafsons(laws), unit),
    ]


def time_per_epoch(series: Sequence[Series], unit: str) -> Chart | str:
    lines, counts = _lines(series, lambda point, _: point.measured("epoch_s"), unit)
    if not lines:
        return f"time per epoch: {NO_SERIES.format(unit=unit)}."
    shown, note = lines_of(lines)
    ideals = tuple(_ideal(line, lambda first, n: first[1].value * first[0] / n) for line in shown)
    return Lines("time_per_epoch", "Time per epoch", f"{unit}s", "time per epoch (s)", shown, ideals, "ideal: 1/n",
                 x_ticks=counts, is_log_y=True, note=note)  # fmt: skip


def speedups(series: Sequence[Series], unit: str) -> Chart | str:
    lines, counts = _lines(series, speedup, unit)
    if not lines:
        return f"speedup: {NO_SERIES.format(unit=unit)}."
    shown, note = lines_of(lines, _without_one(series, unit))
    ideal = tuple((count, count) for count in counts)
    return Lines("speedup", "Speedup", f"{unit}s", f"speedup over one {short(unit)} ({TIMES})", shown, (ideal,),
                 "ideal: n times one, weak and strong", x_ticks=counts, is_log_y=True, is_doubling_y=True,
                 note=note)  # fmt: skip


def efficiencies(series: Sequence[Series], unit: str) -> Chart | str:
    lines, counts = _lines(series, efficiency, unit)
    if not lines:
        return f"efficiency: {NO_SERIES.format(unit=unit)}."
    shown, note = lines_of(lines, _without_one(series, unit))
    ideal = tuple((count, 100.0) for count in counts)
    return Lines("efficiency", "Parallel efficiency", f"{unit}s", "efficiency (% of ideal)", shown, (ideal,),
                 x_ticks=counts, from_zero=True, note=note)  # fmt: skip


def weak_scaling(series: Sequence[Series], unit: str) -> Chart | str:
    weak = [one for one in series if one.kind == "weak"]
    lines, counts = _lines(weak, lambda point, _: point.measured("step_ms"), unit)
    if not lines:
        return f"weak scaling: needs the same batch per {short(unit)} on at least two numbers of {unit}s."
    shown, note = lines_of(lines)
    ideals = tuple(_ideal(line, lambda first, _: first[1].value) for line in shown)
    return Lines("weak_scaling", f"Weak scaling: a fixed batch per {short(unit)}", f"{unit}s", "time per update (ms)",
                 shown, ideals, "ideal: constant", x_ticks=counts, from_zero=True, note=note)  # fmt: skip


def amdahl(fits: Sequence[tuple[Series, Law]], unit: str) -> Chart | str:
    if not fits:
        return f"Amdahl's law: needs the same images per update on at least two numbers of {unit}s."
    return _law("amdahl", "Amdahl's law, fitted", fits, unit)


def gustafson(fits: Sequence[tuple[Series, Law]], unit: str) -> Chart | str:
    if not fits:
        return f"Gustafson's law: needs the same images per {short(unit)} on at least two numbers of {unit}s."
    return _law("gustafson", "Gustafson's law, fitted", fits, unit)


def _law(name: str, title: str, fits: Sequence[tuple[Series, Law]], unit: str) -> Chart:
    """Measured speedups, the law through them, and dotted where nothing was measured."""
    counts = _doubled(BEYOND * max(one.counts[-1] for one, _ in fits))
    lines: list[Line] = []
    for one, fit in fits[:FITS]:
        lines += [_measured_line(one, fit, unit), *_fitted_lines(one, fit, counts)]
    ideal = tuple((count, float(count)) for count in counts)
    y_label = f"speedup over one {short(unit)} ({TIMES})"
    return Lines(name, title, f"{unit}s", y_label, tuple(lines), (ideal,),
                 x_ticks=tuple(counts), is_log_y=True, is_doubling_y=True, note=_fit_note(fits, unit))  # fmt: skip


def _measured_line(one: Series, fit: Law, unit: str) -> Line:
    places = tuple((point.replicas, value) for point in one.points if (value := speedup(point, one.base)))
    most = limit(fit)
    text = "" if most is None else ": no limit seen" if math.isinf(most) else f": limit {figure(most)}{TIMES}"
    return Line(f"{one.title(unit)}{text}", places, is_joined=False)


def _fitted_lines(one: Series, fit: Law, counts: Sequence[int]) -> list[Line]:
    """The curve from the first to the last measured point, and on from there if it describes these."""
    finely = [2 ** (step / 4) for step in range(4 * len(counts) - 3)]
    last = one.counts[-1]
    within, beyond = [n for n in finely if n < last], [n for n in finely if n > last]
    parts = [([*within, last], False), *([([last, *beyond], True)] if fit.describes else [])]
    return [
        Line("", tuple((n, exactly(_relative(fit, one, n))) for n in part), is_curve=True, is_extrapolated=further)
        for part, further in parts
    ]


def _fit_note(fits: Sequence[tuple[Series, Law]], unit: str) -> str:
    notes = [f"Dotted: extrapolated beyond the most {unit}s measured."]
    if not all(fit.describes for _, fit in fits):
        notes.append(f"A law that is off by more than {MISFIT:.0%} is not continued.")
    if not all(fit.is_checked for _, fit in fits):
        notes.append(f"A curve through two numbers of {unit}s always fits, so it is not checked.")
    if len(fits) > FITS:
        notes.append(f"{FITS} of {len(fits)} series; all are in the table.")
    notes.append(_without_one([one for one, _ in fits[:FITS]], unit))
    return " ".join(note for note in notes if note)


def _without_one(series: Sequence[Series], unit: str) -> str:
    """The assumption behind a speedup over one GPU, where no run had one."""
    if all(one.base.replicas == 1 for one in series):
        return ""
    return f"Without a run on one {short(unit)}: the fewest {unit}s of a series, or the baseline, count as ideal."


def _relative(fit: Law, one: Series, count: float) -> float:
    """The fitted speedup over the same base that the measured ones have; the law's speeds are images/s."""
    assert one.base.images_per_s
    return one.base.replicas / one.base.images_per_s.value * fit.speed(count)


def _lines(series: Sequence[Series], read: Reading, unit: str) -> tuple[list[Line], tuple[float, ...]]:
    """A line for each series that has the number at two places; and all the places."""
    lines = []
    for one in series:
        places = tuple((float(p.replicas), value) for p in one.points if (value := read(p, one.base)))
        if len(places) > 1:
            lines.append(Line(one.title(unit), places))
    return lines, tuple(sorted({x for line in lines for x, _ in line.points}))


def _ideal(line: Line, at: Callable[[tuple[float, Measured], float], float]) -> tuple[tuple[float, float], ...]:
    return tuple((x, at(line.points[0], x)) for x, _ in line.points)


def _doubled(most: int) -> list[int]:
    """1, 2, 4, ... up to at least `most`."""
    return [2**power for power in range((most - 1).bit_length() + 1)]
