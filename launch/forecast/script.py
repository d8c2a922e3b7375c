"""Forecast the time and cost of a user's own script on each number of nodes, from its runs.  Pure.

Only the durations of a script are known.  So the forecast is a measurement, or Amdahl's law if it describes two or more
numbers of GPUs; otherwise only a range from perfect scaling to no gain.
"""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from launch.core import catalog
from launch.core.catalog import SAGEMAKER_PREFIX, Instance
from launch.core.estimate.formulas import Figure, Layout
from launch.core.estimate.laws import Law, amdahl
from launch.core.estimate.rates import spot_share
from launch.core.terminal import table
from launch.forecast.compare import WIDTH, Offer, fitting, legend, recommended, time
from launch.forecast.from_runs import Expected, Sample, Samples, counted, expect, nothing_from, plain, times_of
from launch.forecast.options import ForecastOptions
from trainer.errors import SettingsError, one_line

COLUMNS = ("machines", "GPUs", "basis", "job", "job range", "USD", "USD range", "spot")
WORDS = ("machines", "basis")
OPTIONAL = ("spot", "USD range", "basis", "job range")  # left out on a narrow terminal, the first of them first
MEANINGS = {
    "basis": "measured: the median of its runs; fitted: by Amdahl's law; range: nothing is expected.",
    "job": "from the launch to the end.",
    "job range": "of what was measured a tenth less and more, else from perfect scaling to no gain.",
    "USD": "on demand, us-east-1, without volumes.",
}


@dataclass(frozen=True)
class ScriptCandidate:
    """A number of nodes of a type.  usd_per_hour: of all nodes, on demand; None if they are not for sale.

    is_beyond: outside of the measured range of GPUs.
    """

    name: str
    layout: Layout
    expected: Expected
    usd_per_hour: float | None = None
    is_beyond: bool = False

    @property
    def label(self) -> str:
        return f"{self.layout.nodes} x {self.name}"

    @property
    def hours(self) -> float | None:
        return None if self.expected.value is None else self.expected.value / 3600

    @property
    def hours_range(self) -> tuple[float, float]:
        return self.expected.best / 3600, self.expected.worst / 3600

    @property
    def usd(self) -> float | None:
        return None if self.hours is None or self.usd_per_hour is None else self.hours * self.usd_per_hour

    @property
    def usd_range(self) -> tuple[float, float] | None:
        low, high = self.hours_range
        return None if self.usd_per_hour is None else (low * self.usd_per_hour, high * self.usd_per_hour)

    @property
    def spot_usd(self) -> Figure | None:
        """USD at an estimated spot price, without interruptions; None without an expected time."""
        if self.usd is None or self.usd_range is None:
            return None
        (low, high), share = self.usd_range, spot_share()
        return Figure(self.usd * share.value, low * share.best, high * share.worst, "estimated")


@dataclass(frozen=True)
class ScriptComparison:
    """Ranked candidates, the best first.  left_out: reasons for others; sources: the measurements of each type."""

    samples: Samples
    options: ForecastOptions
    candidates: tuple[ScriptCandidate, ...]
    left_out: tuple[str, ...]
    sources: tuple[str, ...]
    notes: tuple[str, ...]


def compare(options: ForecastOptions, samples: Samples) -> ScriptComparison:
    """Every type with every number of nodes.  Raises SettingsError if there is no candidate."""
    types = [_type(name, options, samples) for name in _names(options, samples)]
    candidates = list(chain.from_iterable(each.candidates for each in types))
    left_out = tuple(chain.from_iterable(each.left_out for each in types))
    notes = dict.fromkeys(chain.from_iterable(each.notes for each in types))
    if not candidates:
        raise SettingsError("\n".join(left_out))
    return ScriptComparison(
        samples,
        options,
        tuple(sorted(candidates, key=lambda candidate: _rank(candidate, options))),
        left_out,
        tuple(dict.fromkeys(each.source for each in types if each.source)),
        (*notes, *_unused(samples)),
    )


def _names(options: ForecastOptions, samples: Samples) -> list[str]:
    """The requested types, by default the measured ones."""
    measured = [sample.name for sample in samples.known]
    return list(dict.fromkeys(options.instance_type if "instance_type" in options.model_fields_set else measured))


def _unused(samples: Samples) -> list[str]:
    return [*nothing_from(samples.refused), *samples.unread]


@dataclass(frozen=True)
class _Type:
    """The candidates of a type.  source: its measurements in words; empty if there are none."""

    candidates: Sequence[ScriptCandidate] = ()
    left_out: Sequence[str] = ()
    source: str = ""
    notes: Sequence[str] = ()


def _type(name: str, options: ForecastOptions, samples: Samples) -> _Type:
    own = [sample for sample in samples.known if sample.machine == plain(name)]
    instance = _instance(name, own)
    if not own:
        return _Type(left_out=[f"{name}: never measured; run it there once."])
    _check_alike(name, own)
    found = [_candidate(name, layout, instance, own) for layout in _layouts(options, instance, own)]
    candidates = [candidate for candidate in found if isinstance(candidate, ScriptCandidate)]
    left_out = [reason for reason in found if isinstance(reason, str)]
    return _Type(candidates, left_out, _source(own), _notes(name, instance, candidates, own))


def _instance(name: str, own: Sequence[Sample]) -> Instance | None:
    """The type in the catalog; None for measured machines without a type.  Raises SettingsError for unknown types."""
    return None if own and plain(name) not in catalog.load() else catalog.find(name)


def _check_alike(name: str, own: Sequence[Sample]) -> None:
    """Raise SettingsError if runs differ in anything but the number of GPUs that affects a script's time."""
    first, *others = own
    for other in others:
        for what in {**first.kind, **other.kind}:
            one, two = first.kind.get(what), other.kind.get(what)
            if one != two:
                raise SettingsError(
                    f"{first.run} and {other.run}, both on {name}, differ in {what} ({one_line(one)} and "
                    f"{one_line(two)}), and so may their times; name folders of runs that are alike with --from-run."
                )


def _layouts(options: ForecastOptions, instance: Instance | None, own: Sequence[Sample]) -> list[Layout]:
    """The requested layouts; for machines without a type by default the measured ones."""
    nodes = list(options.nodes)
    if instance is None and "nodes" not in options.model_fields_set:
        nodes = sorted({sample.layout.nodes for sample in own})
    if options.gpus_per_node:
        gpus = [options.gpus_per_node]
    elif instance and instance.is_gpu:
        gpus = [instance.gpus]
    else:
        gpus = sorted({sample.layout.gpus for sample in own})
    return [Layout(count, each) for count in dict.fromkeys(nodes) for each in gpus]


def _candidate(name: str, layout: Layout, instance: Instance | None, own: Sequence[Sample]) -> ScriptCandidate | str:
    """The candidate, or why there is none."""
    label = f"{layout.nodes} x {name}"
    if instance and instance.is_gpu and layout.gpus > instance.gpus:
        return f"{label}: it has {instance.gpus} GPUs, not {layout.gpus}."
    expected = expect(layout, own)
    if expected is None:
        nodes = counted({sample.layout.nodes for sample in own}, "node")
        return f"{label}: as many GPUs were measured on {nodes} only; run it there once."
    counts = [sample.layout.replicas for sample in own]
    is_beyond = not min(counts) <= layout.replicas <= max(counts)
    hourly = _usd_per_hour(name, instance)
    return ScriptCandidate(name, layout, expected, hourly and layout.nodes * hourly, is_beyond)


def _usd_per_hour(name: str, instance: Instance | None) -> float | None:
    if instance is None:
        return None
    return instance.sagemaker_usd_per_hour if name.startswith(SAGEMAKER_PREFIX) else instance.usd_per_hour


def _rank(candidate: ScriptCandidate, options: ForecastOptions) -> tuple[bool, bool, float, float]:
    """The sort key: candidates with an expected time first, others by their worst; without a price last."""
    hours = candidate.hours_range[1] if candidate.hours is None else candidate.hours
    price = hours * (candidate.usd_per_hour or 0.0)
    by_price = options.sort == "cost"
    order = (price, hours) if by_price else (hours, price)
    return candidate.hours is None, by_price and candidate.usd_per_hour is None, *order


def _source(own: Sequence[Sample]) -> str:
    """The measurements of a type, in a sentence."""
    counts = counted({sample.layout.replicas for sample in own}, "GPU")
    runs = counted({len(own)}, "run")
    return f"{own[0].machine}: measured on {counts} by {runs}; {_law_in_words(amdahl(times_of(own)))}"


def _law_in_words(law: Law | None) -> str:
    if law is None:
        return "how it scales is not known: run it on another number of GPUs"
    if not law.describes:
        return "Amdahl's law does not describe these times, so none is expected on other numbers of GPUs"
    checked = f"off by at most {law.worst:.1%}" if law.is_checked else "unchecked, as a curve through two always fits"
    return f"by Amdahl's law {law.serial:.1%} of the time of one does not shrink with more ({checked})"


def _notes(
    name: str, instance: Instance | None, candidates: Sequence[ScriptCandidate], own: Sequence[Sample]
) -> list[str]:
    notes = _beyond(name, candidates, own)
    if not any(_has_network(sample) for sample in own) and any(map(_has_network, candidates)):
        notes.append(f"{name}: no run had several nodes, so what the network between them costs is not in it")
    notes += [_cut_in_words(sample) for sample in own if sample.done < 1]
    warning = catalog.warning(instance) if instance else None
    return [*notes, warning] if warning else notes


def _beyond(name: str, candidates: Sequence[ScriptCandidate], own: Sequence[Sample]) -> list[str]:
    beyond = {one.layout.replicas for one in candidates if one.is_beyond and one.hours is not None}
    measured = counted({sample.layout.replicas for sample in own}, "GPU")
    return [f"{name}: an extrapolation for {counted(beyond, 'GPU')}, as {measured} were measured"] if beyond else []


def _has_network(one: Sample | ScriptCandidate) -> bool:
    return one.layout.nodes > 1


def _cut_in_words(sample: Sample) -> str:
    return f"{sample.run} was cut short with {sample.done:.0%} done: its time is by its pace, without its start"


def as_text(comparison: ScriptComparison, width: int | None = None) -> str:
    """The table, the best first, the recommendation and the notes.  width: of the terminal."""
    cells = [_cells(row) for row in comparison.candidates]
    columns, rows = fitting(COLUMNS, cells, OPTIONAL, width, with_spot=comparison.options.spot)
    widest = min(width or WIDTH, WIDTH)
    paragraphs = [
        f"{comparison.samples.script}, by {counted({len(comparison.samples.known)}, 'run')} of it",
        table(columns, rows, right=set(columns) - set(WORDS)),
        "\n".join(_recommended(comparison)),
        "\n".join(textwrap.fill(note, widest, subsequent_indent="  ") for note in _all_notes(comparison)),
        legend(MEANINGS, columns, width),
    ]
    return "\n\n".join(paragraphs)


def _all_notes(comparison: ScriptComparison) -> list[str]:
    return [
        *(f"{line.rstrip('.')}." for line in comparison.sources),
        *(f"note: {line.rstrip('.')}." for line in comparison.notes),
        *(f"left out: {reason}" for reason in comparison.left_out),
    ]


def _cells(row: ScriptCandidate) -> tuple[str, ...]:
    """The cells of a row, empty if not known."""
    return (
        row.label,
        str(row.layout.replicas),
        _basis(row),
        "" if row.hours is None else time(row.hours),
        " - ".join(map(time, row.hours_range)),
        "" if row.usd is None else f"{row.usd:,.2f}",
        "" if row.usd_range is None else " - ".join(f"{bound:,.2f}" for bound in row.usd_range),
        "" if row.spot_usd is None else f"{row.spot_usd.value:,.2f}",
    )


def _basis(row: ScriptCandidate) -> str:
    return row.expected.basis + (", extrapolated" if row.is_beyond and row.hours is not None else "")


def _recommended(comparison: ScriptComparison) -> list[str]:
    """The cheapest and the fastest of those with an expected cost; without prices only the fastest."""
    known = [(row.hours, row) for row in comparison.candidates if row.hours is not None]
    if not known:
        return ["Nothing is recommended, as none of these was measured: run the script once on one of them."]
    hours, fastest = min(known, key=lambda pair: pair[0])
    how = f"{_basis(fastest)}, {counted({fastest.layout.replicas}, 'GPU')}"
    offers = _offers(comparison)
    lines = recommended(offers) if offers else [f"Fastest: {fastest.label} ({how}) in {time(hours)}."]
    return lines + _perhaps_faster(comparison, hours)


def _offers(comparison: ScriptComparison) -> list[Offer]:
    offers = []
    for row in comparison.candidates:
        if row.hours is not None and row.usd is not None and row.spot_usd is not None:
            price = row.spot_usd.value if comparison.options.spot else row.usd
            offers.append(Offer(f"{row.label} ({_basis(row)})", row.hours, price))
    return offers


def _perhaps_faster(comparison: ScriptComparison, hours: float) -> list[str]:
    """The candidate without an expected time that might be the fastest, if any."""
    unknown = [row for row in comparison.candidates if row.hours is None]
    best = min(unknown, key=lambda row: row.hours_range[0], default=None)
    if best is None or best.hours_range[0] >= hours:
        return []
    return [f"{best.label} may be faster: {time(best.hours_range[0])} at best.  Run it once to know."]


def as_json(comparison: ScriptComparison) -> str:
    rows = [_row(row) for row in comparison.candidates]
    lists = {name: list(getattr(comparison, name)) for name in ("sources", "notes", "left_out")}
    return json.dumps({"script": comparison.samples.script, "candidates": rows, **lists}, indent=2)


def _row(row: ScriptCandidate) -> dict[str, Any]:
    spot = row.spot_usd
    return {
        "instance_type": row.name,
        "nodes": row.layout.nodes,
        "replicas": row.layout.replicas,
        "basis": row.expected.basis,
        "is_extrapolated": row.is_beyond,
        "hours": row.hours,
        "hours_range": row.hours_range,
        "usd_per_hour": row.usd_per_hour,
        "usd": row.usd,
        "usd_range": row.usd_range,
        "spot_usd": spot and spot.value,
        "spot_usd_range": spot and (spot.best, spot.worst),
        "spot_usd_source": spot and spot.source,
    }
