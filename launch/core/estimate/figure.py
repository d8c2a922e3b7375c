"""A number with its range and its source.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Source = Literal["measured", "published", "estimated"]
Side = Literal["value", "best", "worst"]

# How much the same training on the same machines may differ on another day.
AGAIN = 0.1


@dataclass(frozen=True)
class Figure:
    """value: expected; best, worst: the bounds that make a training fastest and slowest, within reason."""

    value: float
    best: float
    worst: float
    source: Source

    def at(self, side: Side) -> float:
        return float(getattr(self, side))

    def times(self, factor: float) -> "Figure":
        return Figure(self.value * factor, self.best * factor, self.worst * factor, self.source)

    def inverse(self, amount: float = 1.0) -> "Figure":
        """The time that `amount` takes at this rate."""
        return Figure(amount / self.value, amount / self.best, amount / self.worst, self.source)

    def at_most(self, limit: float) -> "Figure":
        """This rate, where something else allows no more."""
        return replace(self, value=min(self.value, limit), best=min(self.best, limit), worst=min(self.worst, limit))

    def joined(self, other: "Figure") -> "Figure":
        """The product of two; its source is the less certain one."""
        source: Source = max(self.source, other.source, key=_WORTH.index)
        return Figure(self.value * other.value, self.best * other.best, self.worst * other.worst, source)


_WORTH: list[Source] = ["measured", "published", "estimated"]


def figure(written: Mapping[str, Any]) -> Figure:
    """The figure of an entry in infra/rates.yaml."""
    best, worst = written["range"]
    return Figure(float(written["value"]), float(best), float(worst), written["source"])


def exactly(value: float, source: Source = "published") -> Figure:
    """A figure without a range, such as a data sheet's."""
    return Figure(value, value, value, source)


def measured_time(value: float, source: Source) -> Figure:
    """Seconds from a single measurement."""
    return Figure(value, value * (1 - AGAIN), value * (1 + AGAIN), source)


def measured_rate(value: float, source: Source) -> Figure:
    """A rate per second from a single measurement."""
    return Figure(value, value * (1 + AGAIN), value * (1 - AGAIN), source)
