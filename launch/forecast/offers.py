"""Ranked offers of machines: as a table with a recommendation, and as JSON.  Pure."""

import json
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from launch.core.catalog import SAGEMAKER_PREFIX, Instance
from launch.core.estimate.forecast import hours, seconds
from launch.core.estimate.formulas import Figure, Layout
from launch.core.estimate.rates import spot_share
from launch.core.price import usd
from launch.core.terminal import narrowed, table, without_empty

WIDTH = 100  # without a terminal
WORDS = ("machines", "limited by", "basis")
# Columns that are dropped on a narrow terminal, in this order.
OPTIONAL = ("s/epoch range", "USD/epoch", "spot", "efficiency", "USD range", "basis", "job range", "images/s",
            "limited by")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Offer(ABC):
    """A number of nodes of a type, with time and cost of the job."""

    name: str  # of the type, as given by the user, with or without ml.
    layout: Layout
    hours: float | None  # None if not known
    hours_range: tuple[float, float]
    usd_per_hour: float | None  # of all nodes, on demand; None if they are not for sale

    @property
    def label(self) -> str:
        return f"{self.layout.nodes} x {self.name}"

    @property
    def recommended_as(self) -> str:
        return self.label

    @property
    @abstractmethod
    def cells(self) -> Mapping[str, str]:
        """Cells of the table by column; empty if not known."""

    @property
    @abstractmethod
    def figures(self) -> Mapping[str, Any]:
        """Figures for --json, in addition to those of all offers."""

    @property
    def usd(self) -> float | None:
        return None if self.hours is None or self.usd_per_hour is None else self.hours * self.usd_per_hour

    @property
    def usd_range(self) -> tuple[float, float] | None:
        low, high = self.hours_range
        return None if self.usd_per_hour is None else (low * self.usd_per_hour, high * self.usd_per_hour)

    @property
    def spot_usd(self) -> Figure | None:
        """USD at an estimated spot price, without interruptions."""
        if self.usd is None or self.usd_range is None:
            return None
        (low, high), share = self.usd_range, spot_share()
        return Figure(self.usd * share.value, low * share.best, high * share.worst, "estimated")

    @property
    def usd_cells(self) -> dict[str, str]:
        return {
            "USD": "" if self.usd is None else f"{self.usd:,.2f}",
            "USD range": "" if self.usd_range is None else " - ".join(f"{bound:,.2f}" for bound in self.usd_range),
            "spot": "" if self.spot_usd is None else f"{self.spot_usd.value:,.2f}",
        }


Kind = TypeVar("Kind", bound=Offer)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Ranked offers, the best first, with a recommendation and notes."""

    title: str
    offers: tuple[Offer, ...]
    meanings: Mapping[str, str]  # of columns that need one
    is_spot: bool  # whether the ranking is by spot prices
    recommendation: Sequence[str]
    more: Sequence[str] = ()  # lines below the table
    notes: Mapping[str, Sequence[str]]  # sentences by kind, as in --json
    head: Mapping[str, Any] = field(default_factory=dict)  # for --json


# Prefixes of the kinds of notes in text.
PREFIXES = {"notes": "note: ", "left_out": "left out: "}


def usd_per_hour(name: str, instance: Instance) -> float | None:
    """The on-demand price of a node; SageMaker's for ml. names."""
    return instance.sagemaker_usd_per_hour if name.startswith(SAGEMAKER_PREFIX) else instance.usd_per_hour


def ranked(offers: Sequence[Kind], sort: str) -> tuple[Kind, ...]:
    """Offers with a known time first, others by their longest time; those without a price last.

    The order is the same for spot prices, which are a share of on-demand prices.
    """

    def key(offer: Offer) -> tuple[bool, bool, float, float]:
        hours = offer.hours_range[1] if offer.hours is None else offer.hours
        price = hours * (offer.usd_per_hour or 0.0)
        by_price = sort == "cost"
        order = (price, hours) if by_price else (hours, price)
        return offer.hours is None, by_price and offer.usd_per_hour is None, *order

    return tuple(sorted(offers, key=key))


def recommended(offers: Sequence[Offer], *, is_spot: bool) -> list[str]:
    """Sentences on the cheapest and the fastest offer with a price; empty if no offer has one."""
    priced = []
    for offer in offers:
        if offer.hours is not None and offer.usd is not None and offer.spot_usd is not None:
            priced.append((offer.hours, offer.spot_usd.value if is_spot else offer.usd, offer.recommended_as))
    if not priced:
        return []
    cheapest, fastest = min(priced, key=lambda row: row[1]), min(priced, key=lambda row: row[0])
    if cheapest is fastest:
        return [f"Cheapest and fastest: {_bill(*cheapest)}."]
    return [
        f"Cheapest: {_bill(*cheapest)}.",
        f"Fastest:  {_bill(*fastest)}: {cheapest[0] / fastest[0]:.1f} times as fast for "
        f"{fastest[1] / cheapest[1]:.1f} times the price.",
    ]


def _bill(hours: float, amount: float, label: str) -> str:
    return f"{label}, {usd(amount)} in {time(hours)}"


def time(amount: float) -> str:
    """Hours in words; seconds below two minutes."""
    return hours(amount) if amount >= 1 / 30 else f"{seconds(amount * 3600)} s"


def as_text(comparison: Comparison, width: int | None = None) -> str:
    """The table, the best first, the recommendation and the notes.  width: of the terminal."""
    names = list(comparison.offers[0].cells)
    cells = [list(offer.cells.values()) for offer in comparison.offers]
    optional = [name for name in OPTIONAL if name != "spot" or not comparison.is_spot]
    columns, rows = narrowed(*without_empty(names, cells), optional, width or WIDTH)
    widest = min(width or WIDTH, WIDTH)
    paragraphs = [
        comparison.title,
        table(columns, rows, right=set(columns) - set(WORDS)),
        "\n".join(comparison.more),
        "\n".join(comparison.recommendation),
        "\n".join(_note_lines(comparison.notes, widest)),
        _legend(comparison.meanings, columns, widest),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _note_lines(notes: Mapping[str, Sequence[str]], width: int) -> Iterator[str]:
    for kind, sentences in notes.items():
        for sentence in sentences:
            yield textwrap.fill(f"{PREFIXES.get(kind, '')}{sentence.rstrip('.')}.", width, subsequent_indent="  ")


def _legend(meanings: Mapping[str, str], columns: Sequence[str], width: int) -> str:
    share = spot_share()
    spot = f"{share.value:g} of the price on demand, an estimate ({share.best:g} to {share.worst:g})."
    words = [f"{name}: {meaning}" for name, meaning in {**meanings, "spot": spot}.items() if name in columns]
    return textwrap.fill(" ".join(words), width)


def as_json(comparison: Comparison) -> str:
    rows = [_row(offer) for offer in comparison.offers]
    return json.dumps({**comparison.head, "candidates": rows, **comparison.notes}, indent=2)


def _row(offer: Offer) -> dict[str, Any]:
    spot = offer.spot_usd
    return {
        "instance_type": offer.name,
        "nodes": offer.layout.nodes,
        "replicas": offer.layout.replicas,
        **offer.figures,
        "usd_per_hour": offer.usd_per_hour,
        "usd": offer.usd,
        "usd_range": offer.usd_range,
        "spot_usd": spot and spot.value,
        "spot_usd_range": spot and (spot.best, spot.worst),
        "spot_usd_source": spot and spot.source,
    }
