"""The charts of a report.  Each function returns a chart, or a sentence why there is none."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from launch.core.drawing.charts import (
    TIMES,
    Bar,
    Bars,
    Chart,
    Line,
    Lines,
    Measured,
    exactly,
    figure,
    lines_of,
    rows_of,
    signed,
)
from launch.core.drawing.curves import STEP
from launch.core.estimate.laws import MISFIT, Law
from launch.report.cost import cost
from launch.report.points import Point, accuracy_over, key, short
from launch.report.series import Comparison, Series, efficiency, limit, speedup

FITS = 4  # drawn at most
BEYOND = 8  # a fitted curve ends at this multiple of the largest measured number of GPUs

Reading = Callable[[Point, Point], Measured | None]
Places = tuple[tuple[float, float], ...]
NO_SERIES = "needs the same settings on at least two numbers of {unit}s"
COMPUTE = ("forward_ms", "backward_ms", "optimizer_ms")


def all_scaling(series: Sequence[Series], laws: Sequence[tuple[Series, Law]], unit: str) -> list[Chart | str]:
    x, needs, weak = f"{unit}s", NO_SERIES.format(unit=unit), [one for one in series if one.kind == "weak"]
    without_one = _without_one(series, unit)
    return [
        _against_count(
            Lines("time_per_epoch", "Time per epoch", x, "time per epoch (s)", (), (), "ideal: 1/n", is_log_y=True),
            series, unit, lambda point, _: point.measured("epoch_s"), f"time per epoch: {needs}.",
            lambda lines, _: [_ideal(line, lambda first, n: first[1].value * first[0] / n) for line in lines],
        ),
        _against_count(
            Lines("speedup", "Speedup", x, f"speedup over one {short(unit)} ({TIMES})", (), (),
                  "ideal: n times one, weak and strong", is_log_y=True, is_doubling_y=True, note=without_one),
            series, unit, speedup, f"speedup: {needs}.", lambda _, counts: [tuple((n, n) for n in counts)],
        ),
        _against_count(
            Lines("efficiency", "Parallel efficiency", x, "efficiency (% of ideal)", (), from_zero=True,
                  note=without_one),
            series, unit, efficiency, f"efficiency: {needs}.", lambda _, counts: [tuple((n, 100.0) for n in counts)],
        ),
        _against_count(
            Lines("weak_scaling", f"Weak scaling: a fixed batch per {short(unit)}", x, "time per update (ms)", (), (),
                  "ideal: constant", from_zero=True),
            weak, unit, lambda point, _: point.measured("step_ms"),
            f"weak scaling: needs the same batch per {short(unit)} on at least two numbers of {unit}s.",
            lambda lines, _: [_ideal(line, lambda first, _: first[1].value) for line in lines],
        ),
        fitted("Amdahl", laws, unit),
        fitted("Gustafson", laws, unit),
    ]  # fmt: skip


def _against_count(
    chart: Lines, series: Sequence[Series], unit: str, read: Reading, why_not: str,
    ideals: Callable[[Sequence[Line], Sequence[float]], Sequence[Places]] = lambda lines, counts: (),
) -> Chart | str:  # fmt: skip
    """`chart` with a line for each series that has values on several numbers of GPUs; `why_not` without one.

    ideals: of the lines and of all numbers of GPUs.
    """
    lines = []
    for one in series:
        places = tuple((float(p.replicas), value) for p in one.points if (value := read(p, one.base)))
        if len(places) > 1:
            lines.append(Line(one.title(unit), places))
    if not lines:
        return why_not
    shown, note = lines_of(lines, chart.note)
    counts = tuple(sorted({x for line in shown for x, _ in line.points}))
    return replace(chart, lines=shown, ideals=tuple(ideals(shown, counts)), x_ticks=counts, note=note)


def fitted(name: str, laws: Sequence[tuple[Series, Law]], unit: str) -> Chart | str:
    """Measured speedups with the fitted law, dotted outside of the measured range."""
    fits = [(one, law) for one, law in laws if law.name == name]
    if not fits:
        same = "update" if name == "Amdahl" else short(unit)
        return f"{name}'s law: needs the same images per {same} on at least two numbers of {unit}s."
    counts = _doubled(BEYOND * max(one.counts[-1] for one, _ in fits))
    lines: list[Line] = []
    for one, fit in fits[:FITS]:
        lines += [_measured_line(one, fit, unit), *_fitted_lines(one, fit, counts)]
    ideal = tuple((count, float(count)) for count in counts)
    y_label = f"speedup over one {short(unit)} ({TIMES})"
    return Lines(name.lower(), f"{name}'s law, fitted", f"{unit}s", y_label, tuple(lines), (ideal,),
                 x_ticks=tuple(counts), is_log_y=True, is_doubling_y=True, note=_fit_note(fits, unit))  # fmt: skip


def _measured_line(one: Series, fit: Law, unit: str) -> Line:
    places = tuple((point.replicas, value) for point in one.points if (value := speedup(point, one.base)))
    most = limit(fit)
    text = "" if most is None else ": no limit seen" if math.isinf(most) else f": limit {figure(most)}{TIMES}"
    return Line(f"{one.title(unit)}{text}", places, is_joined=False)


def _fitted_lines(one: Series, fit: Law, counts: Sequence[int]) -> list[Line]:
    """The curve through the measured range, extrapolated if it describes the measurements."""
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
    """The assumption behind a speedup over one GPU if no run had one."""
    if all(one.base.replicas == 1 for one in series):
        return ""
    return f"Without a run on one {short(unit)}: the fewest {unit}s of a series, or the baseline, count as ideal."


def _relative(fit: Law, one: Series, count: float) -> float:
    """The fitted speedup over the base of the measured ones; the law's speeds are images/s."""
    assert one.base.images_per_s
    return one.base.replicas / one.base.images_per_s.value * fit.speed(count)


def _ideal(line: Line, at: Callable[[tuple[float, Measured], float], float]) -> Places:
    return tuple((x, at(line.points[0], x)) for x, _ in line.points)


def _doubled(most: int) -> list[int]:
    """1, 2, 4, ... up to at least `most`."""
    return [2**power for power in range((most - 1).bit_length() + 1)]


def all_time(points: Sequence[Point], unit: str) -> list[Chart | str]:
    costs = [price for point in points if (price := cost(point))]
    return [
        breakdown(points, unit),
        compute_communication(points, unit),
        all_reduce(points, unit),
        _single(
            "memory", "Peak memory", _row_key(unit), f"peak memory per {short(unit)} (MiB)",
            [(point, point.measured("peak_memory_mib")) for point in points], "MiB", "peak memory: no run says.",
        ),
        _single(
            "cost_per_epoch", "Cost of an epoch with its evaluation", _row_key(unit), "cost per epoch (USD)",
            [(one.point, one.per_epoch) for one in costs], "USD",
            "cost: no run has a price; --usd-per-gpu-hour gives one to runs that have none.",
        ),
        _single(
            "cost_per_accuracy", "Cost per point of eval accuracy", _row_key(unit),
            "whole cost / final accuracy (USD per percentage point)",
            [(one.point, one.per_accuracy) for one in costs], "USD",
            "cost per point of accuracy: needs runs with a price and an evaluation.",
        ),
    ]  # fmt: skip


def row_label(point: Point) -> str:
    """A label such as `2 x 64, ddp`: the number of GPUs, and the images per GPU and update."""
    return f"{point.replicas} {TIMES} {point.per_gpu:,}  {point.label}"


def breakdown(points: Sequence[Point], unit: str) -> Chart | str:
    rows = []
    for point in points:
        values = [point.measured(f"{part.replace(' ', '_')}_ms") for part in STEP]
        if any(part and part.value for part in values):
            parts = tuple(part.value if part else 0.0 for part in values)
            rows.append(Bar(row_label(point), parts, f"{figure(sum(parts))} ms"))
    if not rows:
        return "where a step goes: no run has the parts of its step times."
    shown, note = rows_of(rows)
    return Bars("breakdown", "Where an update's time goes", "time per update (ms)", _row_key(unit), STEP, shown,
                note=note)  # fmt: skip


def compute_communication(points: Sequence[Point], unit: str) -> Chart | str:
    rows = []
    for point in points:
        talking = point.measured("communication_ms")
        if point.replicas > 1 and talking and talking.value:
            work = sum(part.value for name in COMPUTE if (part := point.measured(name)))
            share = talking.value / (work + talking.value)
            rows.append(Bar(row_label(point), (work, talking.value), f"{share:.0%} communication"))
    if not rows:
        return f"compute against communication: no run on several {unit}s measured its communication."
    shown, note = rows_of(rows)
    return Bars("compute_communication", "Compute against communication", "time per update (ms)", _row_key(unit),
                ("compute", "communication"), shown, is_stacked=False, note=note)  # fmt: skip


def all_reduce(points: Sequence[Point], unit: str) -> Chart | str:
    several = [point for point in points if point.replicas > 1]
    chart = _single(
        "all_reduce", "All-reduce bandwidth", _row_key(unit), "bus bandwidth, 2(n-1)/n · bytes / time (GB/s)",
        [(point, point.measured("all_reduce_gb_per_s")) for point in several], "GB/s",
        f"all-reduce bandwidth: no run on several {unit}s measured it.",
    )  # fmt: skip
    if isinstance(chart, Bars) and not all(row.spread for row in chart.rows):
        return replace(chart, note=f"A bar without a range is from one probe; others may differ. {chart.note}".rstrip())
    return chart


def _single(
    name: str,
    title: str,
    y_label: str,
    x_label: str,
    values: Sequence[tuple[Point, Measured | None]],
    unit: str,
    why_not: str,
) -> Chart | str:
    """One bar for each point with a value."""
    rows = [
        Bar(row_label(point), (value.value,), f"{figure(value.value)} {unit}", value if value.is_spread else None)
        for point, value in values
        if value and value.value
    ]
    shown, note = rows_of(rows)
    return Bars(name, title, x_label, y_label, ("",), shown, note=note) if rows else why_not


def _row_key(unit: str) -> str:
    return f"{short(unit)}s {TIMES} images per {short(unit)}"


def all_learning(
    points: Sequence[Point], series: Sequence[Series], compared: Comparison | None, unit: str
) -> list[Chart | str]:
    return [
        _final(series, unit, "loss", "eval_loss", 1, "final eval loss (cross-entropy, nats)"),
        _final(series, unit, "accuracy", "eval_top1", 100, "final eval accuracy (%)"),
        _over(points, "accuracy_over_time", "Test accuracy over time", "time (s)", place=0),
        _over(points, "accuracy_over_epochs", "Test accuracy over epochs", "epoch", place=1),
        large_batch(compared),
        gaps(compared),
    ]


def _final(series: Sequence[Series], unit: str, kind: str, name: str, factor: int, y_label: str) -> Chart | str:
    """The last value of a metric against the number of GPUs."""

    def read(point: Point, _: Point) -> Measured | None:
        end = point.ended_with(name)
        return end * factor if end else None

    why_not = f"{kind} against {unit}s: needs evaluated runs of the same settings on two numbers of {unit}s."
    chart = Lines(kind, f"Test {kind} against {unit}s", f"{unit}s", y_label, ())
    return _against_count(chart, series, unit, read, why_not)


def _over(points: Sequence[Point], name: str, title: str, x_label: str, place: int) -> Chart | str:
    """A line for the first run of each of a few points.  place: index of x in the rows of accuracy_over()."""
    scored = [point for point in points if len(accuracy_over(point.runs[0])) > 1]
    if not scored:
        return f"{title[5:]}: no run was evaluated twice."
    lines = []
    for point in _spread_out(scored):
        places = tuple((at[place], Measured(*[at[2]] * 3)) for at in accuracy_over(point.runs[0]))
        lines.append(Line(row_label(point), places))
    shown, _ = lines_of(lines)
    note = f"{len(shown)} of {len(scored)} points." if len(shown) < len(scored) else ""
    return Lines(name, title, x_label, "eval accuracy (%)", shown, note=note)


def _spread_out(points: Sequence[Point]) -> list[Point]:
    """The fewest and the most GPUs of the first family, then the most of each other, then the rest."""
    families: dict[str, list[Point]] = {}
    for point in points:
        families.setdefault(key(point.family), []).append(point)
    first = next(iter(families.values()))
    chosen = [min(first, key=lambda point: point.replicas)]
    chosen += [max(members, key=lambda point: point.replicas) for members in families.values()]
    return [point for index, point in enumerate([*chosen, *points]) if point not in [*chosen, *points][:index]]


def large_batch(compared: Comparison | None) -> Chart | str:
    if compared is None:
        return "large batches: needs evaluated runs with different global batches, or different remedies."
    recipes: dict[str, list[tuple[float, Measured]]] = {}
    for trial in compared.trials:
        recipes.setdefault(trial.recipe, []).append((float(trial.per_update), trial.accuracy))
    lines = [Line(name, tuple(sorted(places, key=lambda place: place[0]))) for name, places in recipes.items()]
    shown, note = lines_of(lines)
    batches = tuple(sorted({x for line in shown for x, _ in line.points}))
    zero = compared.baseline.accuracy.value
    ideal = ((batches[0], zero), (batches[-1], zero)) if len(batches) > 1 else ()
    return Lines("large_batch", f"Large batches: {compared.task}", "global batch (images per update)",
                 "final eval accuracy (%)", shown, (ideal,) if ideal else (), "baseline", x_ticks=batches,
                 note=note)  # fmt: skip


def gaps(compared: Comparison | None) -> Chart | str:
    if compared is None:
        return ""  # large_batch() gives the reason
    others = sorted(compared.trials[1:], key=lambda trial: -trial.gap)
    rows = [Bar(f"{trial.per_update:,}  {trial.recipe}", (trial.gap,), signed(trial.gap)) for trial in others]
    shown, note = rows_of(rows)
    zero = compared.baseline
    x_label = f"eval accuracy above {zero.per_update:,} {zero.recipe} (percentage points)"
    return Bars("large_batch_gap", "Gap to the baseline", x_label, "images per update", ("",), shown, note=note)
