"""A sweep's numbers for people and for programs: lines, tables, runs.csv."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.core.runs import Run
from launch.sweep.one import LOG
from launch.sweep.planned import Planned
from launch.sweep.price import Price, total

CSV = "runs.csv"
# Of the steady epochs, the median; see trainer/README.md.
TYPICAL = ("images_per_s", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms", "optimizer_ms",
           "eval_s", "gpu_utilization_percent")  # fmt: skip
LAST = ("world_size", "replicas", "nodes", "device", "strategy", "precision", "parameters", "global_batch")
FINAL = ("train_loss", "train_top1", "eval_loss", "eval_top1")


def row(run: Run) -> dict[str, Any]:
    """A run's line of runs.csv.  seconds_per_epoch: steady, evaluation left out; seconds: of all, with its start."""
    told = {"name": run.name, "state": run.state, "reason": run.reason, "exit_code": run.exit_code, **run.point}
    measured: dict[str, Any] = {"backend": run.backend, **{name: run.last.get(name) for name in LAST}}
    measured |= {"epochs": len(run.epochs), "seconds_per_epoch": run.typical("epoch_s")}
    measured |= {name: run.typical(name) for name in TYPICAL}
    measured |= {"all_reduce_gb_per_s": _newest(run, "all_reduce_gb_per_s"),
                 "peak_memory_mib": _most(run, "peak_memory_mib")}  # fmt: skip
    measured |= {name: _newest(run, name) for name in FINAL}
    measured |= {"best_top1": _most(run, "eval_top1"), "started": run.started, "seconds": run.seconds}
    measured |= {"usd_per_hour": run.usd_per_hour, "usd": run.usd, "usd_per_epoch": usd_per_epoch(run)}
    # A point's own name for it goes first: what was asked for.
    return {**told, **{name: value for name, value in measured.items() if name not in told}}


def usd_per_epoch(run: Run) -> float | None:
    """Of a steady epoch with its evaluation; None where nobody pays."""
    seconds = run.typical("epoch_s")
    if run.usd_per_hour is None or seconds is None:
        return None
    return run.usd_per_hour * (seconds + (run.typical("eval_s") or 0.0)) / 3600


def _newest(run: Run, name: str) -> Any:
    """The last epoch's that has one."""
    return next((epoch[name] for epoch in reversed(run.epochs) if epoch.get(name) is not None), None)


def _most(run: Run, name: str) -> Any:
    return max((epoch[name] for epoch in run.epochs if epoch.get(name) is not None), default=None)


def write_csv(runs: Sequence[Run], out: Path) -> None:
    """Writes OUT/runs.csv, whole or not at all: a line a run, empty where a value is not known."""
    rows = [row(run) for run in runs]
    names = list(dict.fromkeys(name for run in runs for name in ("name", "state", "reason", "exit_code", *run.point)))
    names += [name for one in rows for name in one if name not in names]
    temporary = out / f"{CSV}.tmp"
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(names)))
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(out / CSV)


def plan_table(runs: Sequence[Planned], prices: Mapping[str, Price], before: Mapping[str, Run]) -> str:
    """The runs with what each should take and cost, and the sum."""
    columns = ("run", "GPUs", "state", "expected", "USD", "at most USD", "")
    rows = []
    for run in runs:
        price, state = prices.get(run.name, Price()), str(before[run.name].state) if run.name in before else "to do"
        rows.append((
            run.name, str(run.replicas or "?"), state, _time(price.expected_s),
            _number(price.expected_usd, 2), _number(price.most_usd, 2), price.words if run.name in prices else "",
        ))  # fmt: skip
    own = [prices[run.name] for run in runs if run.name in prices]
    if len(own) > 1 and any(_sums(own)):
        rows.append(("all that is to do", "", "", *_sums(own), ""))
    return _table(columns, rows)


def _sums(prices: Sequence[Price]) -> tuple[str, str, str]:
    seconds, expected, most = (
        total([getattr(price, name) for price in prices]) for name in ("expected_s", "expected_usd", "most_usd")
    )
    return (_sum(_time(seconds[0]), seconds), _sum(f"{expected[0]:.2f}", expected), _sum(f"{most[0]:.2f}", most))


def _sum(text: str, known: tuple[float, bool]) -> str:
    """The sum, and that it is more where something is not known."""
    return "" if not known[0] else text if known[1] else f"over {text}"


def outcome(run: Run) -> str:
    """What came of a run, in a line."""
    took = f"{run.state} after {run.seconds or 0.0:.0f} s"
    if run.state != "done":
        return f"{took}: {run.reason}"
    parts = [
        (run.typical("epoch_s"), "{:.1f} s per epoch"),
        (run.typical("images_per_s"), "{:,.0f} images/s"),
        (_most(run, "eval_top1"), "best accuracy {:.1%}"),
        (run.usd, "{:.2f} USD"),
    ]
    return f"{took}: " + ", ".join(form.format(value) for value, form in parts if value is not None)


def closing_table(runs: Sequence[Run]) -> str:
    columns = ("run", "state", "GPUs", "s/epoch", "images/s", "comm. ms", "MiB", "accuracy", "USD")
    return _table(columns, [
        (
            run.name, run.state, str(run.replicas or ""), _number(run.typical("epoch_s"), 2),
            _number(run.typical("images_per_s"), 0), _number(run.typical("communication_ms"), 1),
            _number(_most(run, "peak_memory_mib"), 0), _percent(_most(run, "eval_top1")), _number(run.usd, 2),
        )
        for run in runs
    ])  # fmt: skip


def log_hint(folder: Path) -> str:
    return f"tail -f {folder / LOG}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return (
        f"{seconds / 3600:.1f} h"
        if seconds >= 3600
        else f"{seconds / 60:.0f} min"
        if seconds >= 60
        else f"{seconds:.0f} s"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text to the left, numbers to the right; columns without a value are left out."""
    kept = [number for number in range(len(columns)) if any(one[number] for one in rows)]
    cells = [[line[number] for number in kept] for line in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_text = [columns[number] in ("run", "state", "") for number in kept]
    lines = (
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, is_text, strict=True)
        )
        for line in cells
    )
    return "\n".join(f"  {line.rstrip()}" for line in lines)
