"""The charts of where time, memory and money go: a bar for each point.  Each is a chart, or why there is none."""

from collections.abc import Sequence
from dataclasses import replace

from launch.core.drawing.charts import TIMES, Bar, Bars, Chart, Measured, figure, rows_of
from launch.report.cost import Cost, cost
from launch.report.identity import short
from launch.report.points import Point

STEP = ("data wait", "forward", "backward", "communication", "optimizer")
COMPUTE = ("forward_ms", "backward_ms", "optimizer_ms")


def all_time(points: Sequence[Point], unit: str) -> list[Chart | str]:
    costs = [price for point in points if (price := cost(point))]
    return [
        breakdown(points, unit),
        compute_communication(points, unit),
        all_reduce(points, unit),
        memory(points, unit),
        cost_per_epoch(costs, unit),
        cost_per_accuracy(costs, unit),
    ]


def row_label(point: Point) -> str:
    """2 x 64, ddp: the number of GPUs, and the images per GPU and update."""
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


def memory(points: Sequence[Point], unit: str) -> Chart | str:
    x_label = f"peak memory per {short(unit)} (MiB)"
    return _single(
        "memory", "Peak memory", _row_key(unit), x_label,
        [(point, point.measured("peak_memory_mib")) for point in points], "MiB", "peak memory: no run says.",
    )  # fmt: skip


def cost_per_epoch(costs: Sequence[Cost], unit: str) -> Chart | str:
    return _single(
        "cost_per_epoch", "Cost of an epoch with its evaluation", _row_key(unit), "cost per epoch (USD)",
        [(one.point, one.per_epoch) for one in costs], "USD",
        "cost: no run has a price; --usd-per-gpu-hour gives one to runs that have none.",
    )  # fmt: skip


def cost_per_accuracy(costs: Sequence[Cost], unit: str) -> Chart | str:
    return _single(
        "cost_per_accuracy", "Cost per point of eval accuracy", _row_key(unit),
        "whole cost / final accuracy (USD per percentage point)",
        [(one.point, one.per_accuracy) for one in costs], "USD",
        "cost per point of accuracy: needs runs with a price and an evaluation.",
    )  # fmt: skip


def _single(
    name: str,
    title: str,
    y_label: str,
    x_label: str,
    values: Sequence[tuple[Point, Measured | None]],
    unit: str,
    why_not: str,
) -> Chart | str:
    """One bar for each point that has a value."""
    rows = [
        Bar(row_label(point), (value.value,), f"{figure(value.value)} {unit}", value if value.is_spread else None)
        for point, value in values
        if value and value.value
    ]
    shown, note = rows_of(rows)
    return Bars(name, title, x_label, y_label, ("",), shown, note=note) if rows else why_not


def _row_key(unit: str) -> str:
    return f"{short(unit)}s {TIMES} images per {short(unit)}"
