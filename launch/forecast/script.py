"""Forecast the time and cost of a user's own script on each number of nodes, from its runs.  Pure.

Only a script's durations are known.  So the forecast is a measurement, or Amdahl's law if that describes the times on
two or more numbers of GPUs; otherwise only a range from perfect scaling to no gain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from launch.core import catalog
from launch.core.catalog import Instance
from launch.core.estimate.formulas import Layout
from launch.core.estimate.laws import Law, amdahl
from launch.forecast.from_runs import Basis, Sample, Samples, counted, expect, nothing_from, plain, times_of
from launch.forecast.offers import Comparison, Offer, ranked, recommended, time, usd_per_hour
from launch.forecast.options import ForecastOptions
from trainer.errors import SettingsError, one_line

MEANINGS = {
    "basis": "measured: the median of its runs; fitted: by Amdahl's law; range: nothing is expected.",
    "job": "from the launch to the end.",
    "job range": "of what was measured a tenth less and more, else from perfect scaling to no gain.",
    "USD": "on demand, us-east-1, without volumes.",
}


@dataclass(frozen=True, kw_only=True)
class ScriptCandidate(Offer):
    """An offer for a script."""

    basis: Basis
    is_beyond: bool  # outside of the measured range of GPUs

    @property
    def basis_in_words(self) -> str:
        return self.basis + (", extrapolated" if self.is_beyond and self.hours is not None else "")

    @property
    def recommended_as(self) -> str:
        return f"{self.label} ({self.basis_in_words})"

    @property
    def cells(self) -> dict[str, str]:
        return {
            "machines": self.label,
            "GPUs": str(self.layout.replicas),
            "basis": self.basis_in_words,
            "job": "" if self.hours is None else time(self.hours),
            "job range": " - ".join(map(time, self.hours_range)),
            **self.usd_cells,
        }

    @property
    def figures(self) -> dict[str, Any]:
        times = {"hours": self.hours, "hours_range": self.hours_range}
        return {"basis": self.basis, "is_extrapolated": self.is_beyond, **times}


def compare(options: ForecastOptions, samples: Samples) -> Comparison:
    """Compare every type with every number of nodes.  Raises SettingsError if there is no candidate."""
    types = [_type(name, options, samples) for name in _names(options, samples)]
    left_out = list(chain.from_iterable(each.left_out for each in types))
    notes = dict.fromkeys(chain.from_iterable(each.notes for each in types))
    offers = ranked(list(chain.from_iterable(each.candidates for each in types)), options.sort)
    if not offers:
        raise SettingsError("\n".join(left_out))
    return Comparison(
        title=f"{samples.script}, by {counted({len(samples.known)}, 'run')} of it",
        offers=offers,
        meanings=MEANINGS,
        is_spot=options.spot,
        recommendation=_recommended(offers, is_spot=options.spot),
        notes={
            "sources": list(dict.fromkeys(each.source for each in types if each.source)),
            "notes": [*notes, *nothing_from(samples.refused), *samples.unread],
            "left_out": left_out,
        },
        head={"script": samples.script},
    )


def _names(options: ForecastOptions, samples: Samples) -> list[str]:
    """The requested types, by default the measured ones."""
    measured = [sample.name for sample in samples.known]
    return list(dict.fromkeys(options.instance_type if "instance_type" in options.model_fields_set else measured))


@dataclass(frozen=True)
class _Type:
    """The candidates of a type."""

    candidates: Sequence[ScriptCandidate] = ()
    left_out: Sequence[str] = ()
    source: str = ""  # its measurements in words; empty if there are none
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
    """Raise SettingsError if runs differ in anything that affects a script's time, other than the number of GPUs."""
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
    hourly = usd_per_hour(name, instance) if instance else None
    return ScriptCandidate(
        name=name,
        layout=layout,
        hours=None if expected.value is None else expected.value / 3600,
        hours_range=(expected.best / 3600, expected.worst / 3600),
        usd_per_hour=hourly and layout.nodes * hourly,
        basis=expected.basis,
        is_beyond=is_beyond,
    )


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


def _recommended(offers: Sequence[ScriptCandidate], *, is_spot: bool) -> list[str]:
    """Sentences on the cheapest and the fastest candidate; without prices only on the fastest."""
    known = [(row.hours, row) for row in offers if row.hours is not None]
    if not known:
        return ["Nothing is recommended, as none of these was measured: run the script once on one of them."]
    hours, fastest = min(known, key=lambda pair: pair[0])
    how = f"{fastest.basis_in_words}, {counted({fastest.layout.replicas}, 'GPU')}"
    lines = recommended(offers, is_spot=is_spot) or [f"Fastest: {fastest.label} ({how}) in {time(hours)}."]
    return lines + _perhaps_faster(offers, hours)


def _perhaps_faster(offers: Sequence[ScriptCandidate], hours: float) -> list[str]:
    """A sentence on the candidate without an expected time that might be the fastest, if any."""
    unknown = [row for row in offers if row.hours is None]
    best = min(unknown, key=lambda row: row.hours_range[0], default=None)
    if best is None or best.hours_range[0] >= hours:
        return []
    return [f"{best.label} may be faster: {time(best.hours_range[0])} at best.  Run it once to know."]
