"""All numbers as tables for the page, the terminal and table.csv.  Pure."""

import math
from dataclasses import dataclass, replace
from typing import Any

from launch.core.drawing.charts import DASH, Measured, figure, signed
from launch.core.runs import Run, csv_of
from launch.core.terminal import narrowed
from launch.core.terminal import table as aligned
from launch.report import own
from launch.report.cost import cost, per_accuracy
from launch.report.findings import Findings
from launch.report.points import Point, per_update, short
from launch.report.series import Series, efficiency, limit, speedup

# Medians over a run's steady epochs; trainer/README.md describes them.
TYPICAL = ("epoch_s", "images_per_s", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms",
           "optimizer_ms", "all_reduce_gb_per_s", "peak_memory_mib", "gpu_utilization_percent")  # fmt: skip
ENDED = ("train_loss", "eval_loss", "train_top1", "eval_top1", "eval_top5")
OF_RUN = ("strategy", "precision", "device", "nodes", "parameters")


@dataclass(frozen=True)
class Table:
    """A table."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1  # how many columns at the left are text; the others are numbers, aligned to the right
    optional: tuple[str, ...] = ()  # columns that are dropped on a narrow terminal, in this order


def tables(results: Findings) -> dict[str, Table]:
    """All tables with rows, by name."""
    every = [of_series(results), of_points(results), of_costs(results), of_targets(results), of_batches(results)]
    every += [of_metrics(results), of_runs(results)]
    return {table.name: table for table in every if table.rows}


def for_terminal(results: Findings) -> list[Table]:
    """The tables that the terminal shows."""
    every = tables(results)
    return [every[name] for name in ("metrics", "series") if name in every]


def of_series(results: Findings) -> Table:
    """Every series at every number of GPUs."""
    rows = [_series_row(one, point, results) for one in results.series for point in one.points]
    columns = ("series", "scaling", f"{results.unit}s", "runs", "images/s", "epoch, s", "speedup", "efficiency",
               "serial part", "limit")  # fmt: skip
    optional = ("limit", "serial part", "runs", "epoch, s", "scaling")
    return Table("series", "Speedup and efficiency", columns, tuple(rows), 2, optional)


def _series_row(one: Series, point: Point, results: Findings) -> tuple[str, ...]:
    law = results.law_of(one) if point is one.points[-1] else None
    most = limit(law) if law else None
    serial = f"{law.serial:.1%}" if law and law.describes else ""
    return (
        one.title(results.unit), one.kind, f"{point.replicas:,}", runs_of(point), shown(point.images_per_s),
        shown(point.measured("epoch_s")), shown(speedup(point, one.base)), percent(efficiency(point, one.base)),
        serial, "" if most is None else "∞" if math.isinf(most) else figure(most),
    )  # fmt: skip


def runs_of(point: Point) -> str:
    """The number of runs of a point, and whether only warm-up epochs were measured."""
    return f"{len(point.runs)}" if any(run.is_warm for run in point.runs) else f"{len(point.runs)}, warm-up"


def of_points(results: Findings) -> Table:
    """The table of measurements, a row per point."""
    rows = tuple(_point_row(point) for point in results.points)
    columns = ("settings", f"{results.unit}s", f"images per {short(results.unit)}", "images per update", "runs",
               "epoch, s", "update, ms", "data wait, ms", "forward, ms", "backward, ms", "communication, ms",
               "optimizer, ms", "all-reduce, GB/s", "peak memory, MiB", "eval loss", "eval accuracy")  # fmt: skip
    caption = (
        "Every point: medians of the steady epochs, with their range; of several runs their median with its 95% "
        "interval, which of up to five is their whole range, and holds for two in 50%, for three in 75% of cases"
    )
    return Table("points", caption, columns, rows)


def _point_row(point: Point) -> tuple[str, ...]:
    loss, accuracy = point.ended_with("eval_loss"), point.ended_with("eval_top1")
    names = ("epoch_s", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms", "optimizer_ms",
             "all_reduce_gb_per_s", "peak_memory_mib")  # fmt: skip
    return (
        point.label, f"{point.replicas:,}", f"{point.per_gpu:,}", f"{point.per_update:,}", runs_of(point),
        *(shown(point.measured(name)) for name in names),
        f"{loss.value:.4f}" if loss else DASH, percent_of_repeats(accuracy * 100 if accuracy else None),
    )  # fmt: skip


def of_costs(results: Findings) -> Table:
    costs = [one for point in results.points if (one := cost(point))]
    rows = tuple(
        (one.point.label, f"{one.point.replicas:,}", f"{one.point.per_update:,}", shown(one.per_epoch),
         shown(one.whole), shown(one.per_accuracy))
        for one in costs
    )  # fmt: skip
    columns = ("settings", f"{results.unit}s", "images per update", "an epoch, USD", "the whole, USD",
               "a point of accuracy, USD")  # fmt: skip
    return Table("costs", "Cost", columns, rows)


def of_targets(results: Findings) -> Table:
    """The time and cost of each point to reach --target-accuracy."""
    rows = tuple(
        (one.point.label, f"{one.point.replicas:,}", f"{one.point.per_update:,}",
         f"{one.runs} of {len(one.point.runs)}", shown(one.s), shown(one.usd))
        for one in results.reached
    )  # fmt: skip
    columns = ("settings", f"{results.unit}s", "images per update", "runs that reached it", "time, s", "USD")
    return Table("targets", f"To {results.target:g}% of eval accuracy" if results.target else "", columns, rows)


def of_batches(results: Findings) -> Table:
    trials = results.compared.trials if results.compared else ()
    rows = tuple(
        (trial.recipe, f"{trial.per_update:,}", str(sum(len(point.runs) for point in trial.points)),
         percent_of_repeats(trial.accuracy), "baseline" if index == 0 else signed(trial.gap))
        for index, trial in enumerate(trials)
    )  # fmt: skip
    columns = ("recipe", "images per update", "runs", "eval accuracy", "gap, points")
    return Table("batches", "Large batches", columns, rows)


def of_metrics(results: Findings) -> Table:
    """Every run of a script, with its own metrics."""
    columns, rows = own.columns_and_rows(results.own)
    caption = "Metrics: the newest of each, and the best where its name says which way is better"
    return Table("metrics", caption, columns, rows, optional=columns[:0:-1])


def of_runs(results: Findings) -> Table:
    """Every run, with the reason if it failed."""
    rows = tuple(
        (run.name, run.state, run.reason or DASH, f"{run.replicas or run.point.get('gpus', DASH)}",
         f"{len(run.epochs)}",
         f"{run.seconds:,.0f}" if run.seconds is not None else DASH)
        for run in results.runs
    )  # fmt: skip
    records = "records" if results.is_of_scripts else "epochs"
    columns = ("run", "state", "reason", f"{results.unit}s", records, "whole, s")
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


def percent_of_repeats(value: Measured | None) -> str:
    """92.1%, or over several seeds with its interval: 92.1% (91.8-92.6)."""
    span = f" ({value.low:.1f}{DASH}{value.high:.1f})" if value and value.is_spread else ""
    return f"{percent(value, 1)}{span}"


def as_csv(results: Findings) -> str:
    """One line per run, including failed ones; plain numbers, empty if missing."""
    points = {id(run): point for point in results.points for run in point.runs}
    series = {id(point): one for one in reversed(results.series) for point in one.points}
    rows = []
    for run in results.runs:
        point = points.get(id(run))
        rows.append({**_csv_row(run, point, series.get(id(point)), results.unit), **_csv_own(run, results)})
    names = list(dict.fromkeys(name for row in rows for name in row))
    names.sort(key=lambda name: (name.startswith("point."), name if name.startswith("point.") else ""))
    return csv_of(rows, names)


def _csv_row(run: Run, point: Point | None, within: Series | None, unit: str) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run.name, "state": run.state, "reason": run.reason, "backend": run.backend}
    row["label"] = point.label if point else ""
    row |= {"replicas": run.replicas or "", "global_batch": per_update(run) or ""}
    row |= {name: run.last.get(name, "") for name in OF_RUN}
    row |= _csv_scaling(run, point, within, unit)
    row |= {name: _plain(run.typical(name)) for name in TYPICAL}
    row |= {name: _plain(run.newest(name)) for name in ENDED}
    row |= {"epochs": len(run.epochs), "seconds": _plain(run.seconds)}
    row |= {"usd": _plain(run.whole_usd), "usd_per_epoch": _plain(run.usd_per_epoch)}
    row["usd_per_accuracy_point"] = _plain(per_accuracy(run))
    return row


def _csv_own(run: Run, results: Findings) -> dict[str, Any]:
    """The run's point in its sweep, and the metrics of a script."""
    metrics = own.csv_row(run) if run in results.own.runs else {}
    return {**metrics, **{f"point.{name}": value for name, value in run.point.items()}}


def _csv_scaling(run: Run, point: Point | None, within: Series | None, unit: str) -> dict[str, str]:
    """The run's series, and its own speedup in it."""
    if point is None or within is None:
        return {"series": "", "speedup": "", "efficiency": ""}
    fast = speedup(replace(point, runs=(run,)), within.base)
    efficiency = fast.value / run.replicas if fast else None
    return {
        "series": within.title(unit), "speedup": _plain(fast.value if fast else None), "efficiency": _plain(efficiency)
    }  # fmt: skip


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def as_text(table: Table, most: int = 20, width: int | None = None) -> str:
    """The first rows in columns for a terminal of `width` characters; None: unlimited."""
    columns, rows = narrowed(table.columns, table.rows[:most], table.optional, width)
    text = aligned(columns, rows, right=set(table.columns[table.texts :]))
    more = len(table.rows) - most
    return f"{text}\n  ... and {more} more rows" if more > 0 else text
