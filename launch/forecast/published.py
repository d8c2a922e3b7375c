"""Compare the forecast with published results (infra/published.yaml), row by row.  Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from launch.core import catalog
from launch.core.catalog import Instance, Rate
from launch.core.estimate.calibrate import COMPUTE, INPUT, as_measured, solve
from launch.core.estimate.formulas import Layout, Side, Work, exactly, step
from launch.core.estimate.rates import FOREVER, Rates, rates_of, table
from launch.core.estimate.training import Training, evaluation_s, training
from launch.core.terminal import table as aligned
from trainer.config import TrainConfig

# Stands for a machine whose type is not known.
UNKNOWN = Instance("g5.xlarge", 1, 8, 1024, 0, 0, Rate(10, 10), Rate(1000, 1000), 0.0)


@dataclass(frozen=True)
class Row:
    """A published result with its forecast."""

    gpus: int
    nodes: int
    published_s: float  # of an epoch
    forecast_s: float
    range_s: tuple[float, float]
    given: str  # the rates that were fitted to this row; empty if none
    limit: str

    @property
    def error(self) -> float:
        """The relative error; 0.1: the forecast is a tenth too long."""
        return self.forecast_s / self.published_s - 1


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    rows: tuple[Row, ...]
    bound: float | None  # the largest allowed error of the other rows
    unknown: str = ""


def cases() -> list[Case]:
    """Every published case with its forecast."""
    return [_case(written) for written in table("published")["cases"]]


def _case(written: Mapping[str, Any]) -> Case:
    given, rates = dict[int, str](), None
    for name in ("compute_row", "network_row"):
        if number := written.get(name):
            rates, given[number] = _fitted(written, written["rows"][number - 1], name, rates)
    rows = tuple(_row(written, row, rates, given.get(number, "")) for number, row in enumerate(written["rows"], 1))
    bound = written.get("bound_percent")
    return Case(written["name"], written["source"], rows, bound and bound / 100, written.get("unknown", ""))


def _row(written: Mapping[str, Any], row: Mapping[str, Any], rates: Rates | None, given: str) -> Row:
    trained = _training(written, row)
    rates = rates or _rates(written, trained)
    low, high = _epoch_s(written, trained, rates, "best"), _epoch_s(written, trained, rates, "worst")
    expected = _epoch_s(written, trained, rates)
    limit = step(_work(written, trained), rates.at("value"), trained.layout).limit
    return Row(row["gpus"], row.get("nodes", 1), _seconds(row, trained), expected, (low, high), given, limit)


def _fitted(written: Mapping[str, Any], row: Mapping[str, Any], name: str, rates: Rates | None) -> tuple[Rates, str]:
    """Rates that reproduce the published time of `row`, and the names of the fitted ones."""
    trained = _training(written, row)
    before, target = rates or _rates(written, trained), _seconds(row, trained)

    def solved(slower: Callable[[float], Rates]) -> Rates:
        return slower(solve(target, lambda factor: _epoch_s(written, trained, slower(factor))))

    if name == "network_row":
        return solved(lambda factor: as_measured(before, ("inner_per_s",), 1 / factor)), "network"
    fed = replace(before, decoded_per_s=FOREVER, read_per_s=FOREVER)
    if trained.kind.decodes and target > _epoch_s(written, trained, fed, "worst"):
        # The GPU cannot be that slow, so the input must have been the bottleneck.
        return solved(lambda factor: as_measured(before, INPUT, 1 / factor)), "input"
    return solved(lambda factor: as_measured(before, COMPUTE, factor)), "compute"


def _training(written: Mapping[str, Any], row: Mapping[str, Any]) -> Training:
    names = ("model", "dataset", "precision", "batch_size")
    config = TrainConfig(epochs=1, **{name: written[name] for name in names})
    return training(config, _instance(written), row.get("nodes", 1), gpus=row["gpus"])


def _instance(written: Mapping[str, Any]) -> Instance:
    return catalog.find(written["instance_type"]) if "instance_type" in written else UNKNOWN


def _rates(written: Mapping[str, Any], trained: Training) -> Rates:
    rates = rates_of(_instance(written), trained.cost, trained.kind)
    if written.get("input") == "elsewhere":
        rates = replace(rates, decoded_per_s=FOREVER, read_per_s=FOREVER)
    if "gb_per_s" in written:
        rates = replace(rates, inner_per_s=exactly(written["gb_per_s"] * 1e9))
    return rates


def _work(written: Mapping[str, Any], trained: Training) -> Work:
    work = trained.work()
    return replace(work, wire_bytes=written["gradient_mb"] * 1e6) if "gradient_mb" in written else work


def _epoch_s(written: Mapping[str, Any], trained: Training, rates: Rates, side: Side = "value") -> float:
    speeds, layout, data = rates.at(side), trained.layout, trained.data
    trains_s = trained.updates() * step(_work(written, trained), speeds, layout, side=side).step_s
    evaluating = {"nobody": None, "one": Layout(), "all": layout}[written["evaluation"]]
    return trains_s + (evaluation_s(data, speeds, evaluating) if evaluating else 0.0)


def _seconds(row: Mapping[str, Any], trained: Training) -> float:
    return float(row["seconds"] if "seconds" in row else trained.data.train / row["images_per_s"])


def as_text(cases: Sequence[Case]) -> str:
    """Each case with its rows and errors."""
    return "\n\n".join(
        [*map(_case_as_text, cases), "given: an input to the forecast of the other rows, so it has no error."]
    )


def _case_as_text(case: Case) -> str:
    rows = [
        [
            f"{row.nodes} x {row.gpus}",
            _digits(row.published_s),
            _digits(row.forecast_s),
            " - ".join(map(_digits, row.range_s)),
            f"given: {row.given}" if row.given else f"{row.error:+.1%}",
            row.limit,
        ]
        for row in case.rows
    ]
    columns = ["nodes x GPUs", "published s", "forecast s", "range", "error", "limited by"]
    parts = [f"{case.name}   ({case.source})", aligned(columns, rows, right=set(columns[1:-1]))]
    if case.bound:
        parts.append(f"  bound: {case.bound:.0%}")
    if case.unknown:
        parts.append(f"  what it cannot know: {case.unknown}")
    return "\n".join(parts)


def _digits(amount: float) -> str:
    """Format with as many digits as publications."""
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.4g}"


def as_json(cases: Sequence[Case]) -> str:
    return json.dumps(
        [{**asdict(case), "rows": [{**asdict(row), "error": row.error} for row in case.rows]} for case in cases],
        indent=2,
    )
