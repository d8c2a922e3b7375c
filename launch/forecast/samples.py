"""What runs of a script tell of its time on other numbers of GPUs.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from launch.core.catalog import SAGEMAKER_PREFIX
from launch.core.estimate.amdahl import fit
from launch.core.estimate.figure import AGAIN
from launch.core.estimate.formulas import Layout

Basis = Literal["measured", "fitted", "range"]


@dataclass(frozen=True)
class Sample:
    """A run whose time is known.  name: of its instance type, as it was given, or of its backend where it has none.

    layout: its ranks stand for GPUs; kind: what else its time depends on, by name; done: the share of it that was
    measured, below 1 where it was cut short.
    """

    run: str
    name: str
    layout: Layout
    seconds: float
    kind: Mapping[str, Any] = field(default_factory=dict)
    done: float = 1.0

    @property
    def machine(self) -> str:
        """SageMaker's and EC2's machines of a type are the same."""
        return plain(self.name)


@dataclass(frozen=True)
class Samples:
    """Of one script with the same arguments.  refused: runs that tell no time, each with the reason.

    unread: for each run that could not be read the sentence why not.
    """

    script: str
    known: tuple[Sample, ...]
    refused: tuple[tuple[str, str], ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expected:
    """Seconds.  value: None where nothing says where between best and worst."""

    basis: Basis
    value: float | None
    best: float
    worst: float


def plain(name: str) -> str:
    return name.removeprefix(SAGEMAKER_PREFIX)


def expect(layout: Layout, samples: Sequence[Sample]) -> Expected | None:
    """How long it takes there.  None where it was measured on as many GPUs alone, which other nodes have."""
    own = [sample.seconds for sample in samples if sample.layout == layout]
    if own:
        usual = median(own)
        return Expected("measured", usual, min(*own, usual * (1 - AGAIN)), max(*own, usual * (1 + AGAIN)))
    times = times_of(samples)
    bounds = _bounds(layout.replicas, times)
    if bounds is None:
        return None
    best, worst = bounds
    law = fit(times)
    if law is None or not law.describes:
        return Expected("range", None, best, worst)
    value = law.time(layout.replicas)
    return Expected("fitted", value, min(value, best), max(value, worst))


def times_of(samples: Sequence[Sample]) -> list[tuple[int, float]]:
    """The median of each layout."""
    layouts = dict.fromkeys(sample.layout for sample in samples)
    return [
        (layout.replicas, median(sample.seconds for sample in samples if sample.layout == layout))
        for layout in layouts
    ]  # fmt: skip


def _bounds(count: int, times: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """The least and the most seconds, if more GPUs bring something between no gain and perfect scaling.

    Each other number of GPUs that was measured says so; None if there is none.
    """
    others = [(n / count, seconds) for n, seconds in times if n != count]
    if not others:
        return None
    best = max(seconds * min(1.0, share) for share, seconds in others)
    worst = min(seconds * max(1.0, share) for share, seconds in others)
    return min(best, worst), max(best, worst)  # the other way round where more GPUs took longer, or scaled better
