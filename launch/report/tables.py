"""All numbers as tables: for the page, the terminal and table.csv.  Pure."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from launch.core.drawing.charts import DASH, Measured, figure, signed
from launch.core.runs import Run
from launch.report.cost import cost, per_accuracy, per_epoch, whole
from launch.report.findings import Findings
from launch.report.identity import short
from launch.report.points import Point, newest, per_update
from launch.report.series import Series, efficiency, speedup

# Medians over a run's steady epochs, as trainer/README.md has them.
TYPICAL = ("epoch_s", "images_per_s", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms",
           "optimizer_ms", "all_reduce_gb_per_s", "peak_memory_mib", "gpu_utilization_percent")  # fmt: skip
ENDED = ("train_loss", "eval_loss", "train_top1", "eval_top1", "eval_top5")
OF_RUN = ("strategy", "precision", "device", "nodes", "parameters")


@dataclass(frozen=True)
class Table:
    """texts: how many columns at the left are words; the others are numbers and stand at the right."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1


def tables(found: Findings) -> dict[str, Table]:
    """By name; those without a row are left out."""
    made = [of_series(found), of_points(found), of_costs(found), of_batches(found), of_runs(found)]
    return {table.name: table for table in made if table.rows}


def of_series(found: Findings) -> Table:
    """Every series at every number of GPUs."""
    fits = {id(one): fitted for one, fitted in found.fits}
    rows = []
    for one in found.series:
        fitted = fits.get(id(one))
        for point in one.points:
            last = point is one.points[-1]
            rows.append((
                one.title(found.unit), one.kind, f"{point.replicas:,}", shown(point.images_per_s),
                shown(point.measured("epoch_s")), shown(speedup(point, one.base)),
                percent(efficiency(point, one.base)),
                f"{fitted.serial:.1%}" if fitted and last else "",
                ("∞" if fitted.serial == 0 else figure(fitted.limit)) if fitted and last else "",
            ))  # fmt: skip
    columns = ("series", "scaling", f"{found.unit}s", "images/s", "epoch, s", "speedup", "efficiency",
               "serial part", "limit")  # fmt: skip
    return Table("series", "Speedup and efficiency", columns, tuple(rows), 2)


def of_points(found: Findings) -> Table:
    """What was measured where."""
    rows = tuple(_point_row(point) for point in found.points)
    columns = ("settings", f"{found.unit}s", f"images per {short(found.unit)}", "images per update", "runs",
               "epoch, s", "update, ms", "data wait, ms", "forward, ms", "backward, ms", "communication, ms",
               "optimizer, ms", "all-reduce, GB/s", "peak memory, MiB", "test loss", "test accuracy")  # fmt: skip
    return Table("points", "Every point: medians of the steady epochs, with their range", columns, rows)


def _point_row(point: Point) -> tuple[str, ...]:
    loss, accuracy = point.ended_with("eval_loss"), point.ended_with("eval_top1")
    names = ("epoch_s", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms", "optimizer_ms",
             "all_reduce_gb_per_s", "peak_memory_mib")  # fmt: skip
    return (
        point.label, f"{point.replicas:,}", f"{point.per_gpu:,}", f"{point.per_update:,}", f"{len(point.runs)}",
        *(shown(point.measured(name)) for name in names),
        f"{loss.value:.4f}" if loss else DASH, percent(accuracy * 100 if accuracy else None, 1),
    )  # fmt: skip


def of_costs(found: Findings) -> Table:
    costs = [one for point in found.points if (one := cost(point))]
    rows = tuple(
        (one.point.label, f"{one.point.replicas:,}", f"{one.point.per_update:,}", shown(one.per_epoch),
         shown(one.whole), shown(one.per_accuracy))
        for one in costs
    )  # fmt: skip
    columns = ("settings", f"{found.unit}s", "images per update", "an epoch, USD", "the whole, USD",
               "a point of accuracy, USD")  # fmt: skip
    return Table("costs", "Cost", columns, rows)


def of_batches(found: Findings) -> Table:
    trials = found.compared.trials if found.compared else ()
    rows = tuple(
        (trial.recipe, f"{trial.per_update:,}", str(sum(len(point.runs) for point in trial.points)),
         percent(trial.accuracy, 1), "baseline" if place == 0 else signed(trial.gap))
        for place, trial in enumerate(trials)
    )  # fmt: skip
    columns = ("recipe", "images per update", "runs", "test accuracy", "gap, points")
    return Table("batches", "Large batches", columns, rows)


def of_runs(found: Findings) -> Table:
    """Every run, with why it failed."""
    rows = tuple(
        (run.name, run.state, run.reason or DASH, f"{run.replicas or DASH}", f"{len(run.epochs)}",
         f"{run.seconds:,.0f}" if run.seconds is not None else DASH)
        for run in found.runs
    )  # fmt: skip
    columns = ("run", "state", "reason", f"{found.unit}s", "epochs", "whole, s")
    return Table("runs", "Every run", columns, rows, 3)


def shown(value: Measured | None) -> str:
    """12.3, or with a range: 12.3 (11.9 to 13.0)."""
    if value is None:
        return DASH
    if not value.is_spread:
        return figure(value.value)
    return f"{figure(value.value)} ({figure(value.low)}{DASH}{figure(value.high)})"


def percent(value: Measured | None, places: int = 0) -> str:
    return DASH if value is None else f"{value.value:.{places}f}%"


def as_csv(found: Findings) -> str:
    """One line a run, failed ones too; numbers as they are, empty where there is none."""
    points = {id(run): point for point in found.points for run in point.runs}
    series = {id(point): one for one in reversed(found.series) for point in one.points}
    rows = [_csv_row(run, point := points.get(id(run)), series.get(id(point)), found.unit) for run in found.runs]
    settings = sorted({name for run in found.runs for name in run.point})
    names = [*dict.fromkeys(name for row in rows for name in row)]
    written = StringIO()
    writer = csv.DictWriter(written, [*names, *(f"point.{name}" for name in settings)], lineterminator="\n")
    writer.writeheader()
    for run, row in zip(found.runs, rows, strict=True):
        writer.writerow({**row, **{f"point.{name}": value for name, value in run.point.items()}})
    return written.getvalue()


def _csv_row(run: Run, point: Point | None, within: Series | None, unit: str) -> Mapping[str, Any]:
    row: dict[str, Any] = {"run": run.name, "state": run.state, "reason": run.reason, "backend": run.backend}
    row |= {
        "label": point.label if point else "",
        "replicas": run.replicas or "",
        "global_batch": per_update(run) or "",
    }
    row |= {name: run.last.get(name, "") for name in OF_RUN}
    fast = speedup(replace(point, runs=(run,)), within.base) if point and within else None
    row |= {"series": within.title(unit) if within else "", "speedup": _plain(fast.value if fast else None),
            "efficiency": _plain(fast.value / run.replicas if fast else None)}  # fmt: skip
    row |= {name: _plain(run.typical(name)) for name in TYPICAL}
    row |= {name: _plain(newest(run, name)) for name in ENDED}
    row |= {"epochs": len(run.epochs), "seconds": _plain(run.seconds)}
    row |= {"usd": _plain(whole(run)), "usd_per_epoch": _plain(per_epoch(run)),
            "usd_per_accuracy_point": _plain(per_accuracy(run))}  # fmt: skip
    return row


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def as_text(table: Table, most: int = 20) -> str:
    """For a terminal: the first rows, in columns."""
    rows = [table.columns, *table.rows[:most]]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    lines = [
        "  ".join(
            cell.ljust(width) if place < table.texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    more = len(table.rows) - most
    return "\n".join([*lines, *([f"... and {more} more rows"] if more > 0 else [])])
