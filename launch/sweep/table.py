"""A sweep's results as lines, tables and runs.csv."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from shlex import quote
from typing import Any

from launch.core import metrics
from launch.core.clock import duration
from launch.core.runs import Run, csv_of, number
from launch.core.terminal import narrowed, table, terminal_width, without_empty
from launch.sweep.folder import LOG
from launch.sweep.planned import Planned
from launch.sweep.price import Price, total
from trainer.files import write_atomically

CSV = "runs.csv"
# Medians of the steady epochs; trainer/README.md describes them.
TYPICAL = ("images_per_s", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms", "optimizer_ms",
           "eval_s", "gpu_utilization_percent")  # fmt: skip
LAST = ("world_size", "replicas", "nodes", "device", "strategy", "precision", "parameters", "global_batch")
# Columns of a run, which a script's metrics must not replace.
TAKEN = ("name", "state", "reason", "exit_code", "backend", "records", "started", "seconds", "usd_per_hour", "usd")
SHOWN_METRICS = 6  # in the closing table
FINAL = ("train_loss", "train_top1", "eval_loss", "eval_top1")


def row(run: Run) -> dict[str, Any]:
    """A run's row of runs.csv."""
    values = {"name": run.name, "state": run.state, "reason": run.reason, "exit_code": run.exit_code, **run.point}
    measured = _of_script(run) if run.is_script else _of_trainer(run)
    # A point's requested value takes precedence over a measured one of the same name.
    return {**values, **{name: value for name, value in measured.items() if name not in values}}


def _of_script(run: Run) -> dict[str, Any]:
    """The newest value of each metric, and the best if it has a direction()."""
    measured: dict[str, Any] = {"backend": run.backend, "records": len(run.epochs)}
    bill = {"started": run.started, "seconds": run.seconds, "usd_per_hour": run.usd_per_hour, "usd": run.usd}
    own: dict[str, Any] = dict(metrics.newest(run.epochs))
    own |= {f"best_{name}": metrics.best(run.epochs, name) for name in own if metrics.direction(name)}
    return {**measured, **bill, **{name if name not in TAKEN else f"metric.{name}": own[name] for name in own}}


def _of_trainer(run: Run) -> dict[str, Any]:
    """Columns of the built-in trainer.  seconds_per_epoch: steady, without evaluation."""
    measured: dict[str, Any] = {"backend": run.backend, **{name: run.last.get(name) for name in LAST}}
    measured |= {"epochs": len(run.epochs), "seconds_per_epoch": run.typical("epoch_s")}
    measured |= {name: run.typical(name) for name in TYPICAL}
    measured |= {"all_reduce_gb_per_s": run.newest("all_reduce_gb_per_s")}
    measured |= {"peak_memory_mib": _most(run, "peak_memory_mib")}
    measured |= {name: run.newest(name) for name in FINAL}
    measured |= {"best_top1": _most(run, "eval_top1"), "started": run.started, "seconds": run.seconds}
    return measured | {"usd_per_hour": run.usd_per_hour, "usd": run.usd, "usd_per_epoch": run.usd_per_epoch}


def _most(run: Run, name: str) -> Any:
    return max((epoch[name] for epoch in run.epochs if number(epoch, name) is not None), default=None)


def write_csv(runs: Sequence[Run], out: Path) -> None:
    """Write OUT/runs.csv atomically: a row per run, with empty cells for unknown values."""
    first = [name for run in runs for name in ("name", "state", "reason", "exit_code", *run.point)]
    write_atomically(out / CSV, csv_of([row(run) for run in runs], first))


def plan_table(runs: Sequence[Planned], prices: Mapping[str, Price], before: Mapping[str, Run]) -> str:
    """The runs with the expected time and cost of each, and the sum."""
    rows = [_plan_row(run, prices.get(run.name, Price()), before.get(run.name)) for run in runs]
    todo = [prices[run.name] for run in runs if run.name in prices]
    sums = [
        _sum([price.expected_s for price in todo], _time),
        _sum([price.expected_usd for price in todo], "{:.2f}".format),
        _sum([price.most_usd for price in todo], "{:.2f}".format),
    ]
    if len(todo) > 1 and any(sums):
        rows.append(["total to do", "", "", *sums, "", "", ""])
    columns = ["run", "GPUs", "state", "expected", "USD", "at most USD", "s/epoch", "images/s", "limited by"]
    return _table(columns, rows, optional=("limited by", "images/s", "s/epoch"))


def _plan_row(run: Planned, price: Price, before: Run | None) -> list[str]:
    return [
        run.name, str(run.replicas or "?"), before.state if before else "to do", _time(price.expected_s),
        _number(price.expected_usd, 2), _number(price.most_usd, 2), _number(price.epoch_s, 1),
        _number(price.images_per_s, 0), price.limited_by,
    ]  # fmt: skip


def _sum(values: Sequence[float | None], as_text: Callable[[float], str]) -> str:
    """The sum as text, as a lower bound if some values are not known; empty if none is."""
    amount, is_all = total(values)
    if not amount:
        return ""
    return as_text(amount) if is_all else f"over {as_text(amount)}"


def outcome(run: Run) -> str:
    """How a run ended, in one line."""
    state = f"{run.state} after {duration(timedelta(seconds=run.seconds or 0.0))}"
    if run.state != "done":
        return f"{state}: {run.reason}"
    if run.is_script:
        texts = [metrics.in_words(metrics.newest(run.epochs)), "" if run.usd is None else f"{run.usd:.2f} USD"]
        details = ", ".join(filter(None, texts))
        return f"{state}: {details}" if details else state
    values = [
        (run.typical("epoch_s"), "{:.1f} s per epoch"),
        (run.typical("images_per_s"), "{:,.0f} images/s"),
        (_most(run, "eval_top1"), "best accuracy {:.1%}"),
        (run.usd, "{:.2f} USD"),
    ]
    parts = [text.format(value) for value, text in values if value is not None]
    return f"{state}: {', '.join(parts)}" if parts else state


def closing_table(runs: Sequence[Run]) -> str:
    """The table of all runs with their measurements."""
    names = metrics.metrics_of(record for run in runs if run.is_script for record in run.epochs)
    if any(run.is_script for run in runs):
        return _of_scripts(runs, names[:SHOWN_METRICS])
    rows = [
        [
            run.name, run.state, str(run.replicas or ""), _number(run.typical("epoch_s"), 2),
            _number(run.typical("images_per_s"), 0), _number(run.typical("communication_ms"), 1),
            _number(_most(run, "peak_memory_mib"), 0), _percent(_most(run, "eval_top1")), _number(run.usd, 2),
        ]
        for run in runs
    ]  # fmt: skip
    columns = ["run", "state", "GPUs", "s/epoch", "images/s", "comm. ms", "MiB", "accuracy", "USD"]
    return _table(columns, rows, optional=("MiB", "comm. ms", "images/s"))


def _of_scripts(runs: Sequence[Run], names: Sequence[str]) -> str:
    """The table of a script's runs, with the newest values of these metrics, and their progress."""
    axes = [axis for axis in metrics.AXES if any(axis in metrics.newest(run.epochs) for run in runs)][:1]
    rows = []
    for run in runs:
        own = metrics.newest(run.epochs)
        values = [metrics.shown(own.get(name)) for name in (*axes, *names)]
        rows.append([run.name, run.state, _time(run.seconds), *values, _number(run.usd, 2)])
    return _table(["run", "state", "took", *axes, *names, "USD"], rows, optional=tuple(reversed(names[1:])))


def log_hint(folder: Path) -> str:
    return f"tail -f {quote(str(folder / LOG))}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _time(seconds: float | None) -> str:
    """1.5 h, 12 min or 40 s; empty for None."""
    if seconds is None:
        return ""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str]) -> str:
    """A table of the columns that have a value and fit the terminal; numbers are aligned to the right."""
    shown, cells = narrowed(*without_empty(columns, rows), optional, terminal_width())
    return table(shown, cells, right=set(columns) - {"run", "state", "limited by"})
