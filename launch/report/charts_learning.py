"""The charts of loss and accuracy.  Each is a chart, or the sentence why there is none."""

from collections.abc import Sequence

from launch.core.drawing.charts import TIMES, Bar, Bars, Chart, Line, Lines, Measured, lines_of, rows_of, signed
from launch.report.identity import key
from launch.report.largebatch import Comparison
from launch.report.points import Point, accuracy_over
from launch.report.series import Series


def all_learning(
    points: Sequence[Point], series: Sequence[Series], compared: Comparison | None, unit: str
) -> list[Chart | str]:
    return [
        against_count(series, unit, "loss"),
        against_count(series, unit, "accuracy"),
        over_time(points, unit),
        over_epochs(points, unit),
        large_batch(compared),
        gaps(compared),
    ]


def against_count(series: Sequence[Series], unit: str, kind: str) -> Chart | str:
    name, factor, y_label = {
        "loss": ("eval_loss", 1, "final eval loss (cross-entropy, nats)"),
        "accuracy": ("eval_top1", 100, "final eval accuracy (%)"),
    }[kind]
    lines = []
    for one in series:
        ends = tuple((float(p.replicas), end * factor) for p in one.points if (end := p.ended_with(name)))
        if len(ends) > 1:
            lines.append(Line(one.title(unit), ends))
    if not lines:
        return f"{kind} against {unit}s: needs evaluated runs of the same settings on two numbers of {unit}s."
    shown, note = lines_of(lines)
    counts = tuple(sorted({x for line in shown for x, _ in line.points}))
    return Lines(kind, f"Test {kind} against {unit}s", f"{unit}s", y_label, shown, x_ticks=counts, note=note)


def over_time(points: Sequence[Point], unit: str) -> Chart | str:
    return _over(points, unit, "accuracy_over_time", "Test accuracy over time", "time (s)", place=0)


def over_epochs(points: Sequence[Point], unit: str) -> Chart | str:
    return _over(points, unit, "accuracy_over_epochs", "Test accuracy over epochs", "epoch", place=1)


def _over(points: Sequence[Point], unit: str, name: str, title: str, x_label: str, place: int) -> Chart | str:
    """A line for the first run of each of some points.  place: of x in what accuracy_over() returns."""
    scored = [point for point in points if len(accuracy_over(point.runs[0])) > 1]
    if not scored:
        return f"{title[5:]}: no run was evaluated twice."
    lines = []
    for point in _spread_out(scored):
        places = tuple((at[place], Measured(*[at[2]] * 3)) for at in accuracy_over(point.runs[0]))
        lines.append(Line(f"{point.replicas} {TIMES} {point.per_gpu:,}  {point.label}", places))
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
    return [point for place, point in enumerate([*chosen, *points]) if point not in [*chosen, *points][:place]]


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
        return ""  # large_batch() says why
    others = sorted(compared.trials[1:], key=lambda trial: -trial.gap)
    rows = [Bar(f"{trial.per_update:,}  {trial.recipe}", (trial.gap,), signed(trial.gap)) for trial in others]
    shown, note = rows_of(rows)
    zero = compared.baseline
    x_label = f"eval accuracy above {zero.per_update:,} {zero.recipe} (percentage points)"
    return Bars("large_batch_gap", "Gap to the baseline", x_label, "images per update", ("",), shown, note=note)
