"""The time of one update, from plain numbers with their ranges and sources.  Pure.

launch/forecast/README.md has the formulas in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, log2
from typing import Any, Literal

Source = Literal["measured", "published", "estimated"]
Side = Literal["value", "best", "worst"]

# How much repeated trainings on the same machines may differ.
AGAIN = 0.1


@dataclass(frozen=True)
class Figure:
    """A number with its range.  best, worst: the bounds that make a training fastest and slowest, within reason."""

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
        """This rate, limited to `limit`."""
        return replace(self, value=min(self.value, limit), best=min(self.best, limit), worst=min(self.worst, limit))

    def joined(self, other: "Figure") -> "Figure":
        """The product of two figures, with the less certain source."""
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


# The bottleneck of a step.  The interconnect is between the GPUs of a machine, the network between machines.
Limit = Literal["compute", "kernel launches", "JPEG decoding", "EBS", "S3", "the interconnect", "the network"]

# Shares of a pass: backward takes twice as long as forward, and evaluation takes the forward share.
BACKWARD, FORWARD = 2 / 3, 1 / 3


@dataclass(frozen=True)
class Layout:
    """Machines, and GPUs (or CPU ranks) of each."""

    nodes: int = 1
    gpus: int = 1

    @property
    def replicas(self) -> int:
        return self.nodes * self.gpus


@dataclass(frozen=True)
class Work:
    """One update."""

    batch: int  # images of one replica and pass
    accumulate: int = 1
    wire_bytes: float = 0.0  # of gradients, as they are sent
    bucket_bytes: float = 25 * 2**20  # of gradients in one all-reduce
    image_bytes: float = 0.0  # mean size of an image; 0 if none is read
    strategy: Literal["single", "dp", "ddp", "fsdp"] = "ddp"
    reads_from: Literal["EBS", "S3"] = "EBS"


@dataclass(frozen=True)
class Speeds:
    """Speeds of a replica (image_s, pass_s, update_s, doubling), a machine (decoded, read) and the links."""

    image_s: float  # seconds of an image
    pass_s: float = 0.0  # least seconds of a pass
    update_s: float = 0.0  # seconds of an update, beside its passes
    decoded_per_s: float = inf  # images/s of a machine
    read_per_s: float = inf  # bytes/s of a machine
    inner_per_s: float = inf  # bytes/s of a link within a machine
    inner_hop_s: float = 0.0  # seconds per hop
    outer_per_s: float = inf  # bytes/s of a link between machines
    outer_hop_s: float = 0.0
    lasting_per_s: float = inf  # sustained bytes/s of a link between machines
    doubling: float = 0.0  # how much longer a replica computes with each doubling of their number


@dataclass(frozen=True)
class Step:
    """Seconds of an update."""

    compute_s: float
    communication_s: float  # all of it
    exposed_s: float  # not hidden by the backward pass
    takes: Mapping[Limit, float]  # seconds if that part alone set the pace; the longest does

    @property
    def limit(self) -> Limit:
        return max(self.takes, key=lambda name: self.takes[name])

    @property
    def step_s(self) -> float:
        return self.takes[self.limit]


def ring_s(ranks: int, size: float, per_s: float) -> float:
    """Seconds of a ring all-reduce of `size` bytes over links of `per_s` bytes/s, without latency."""
    return 2 * (ranks - 1) / ranks * size / per_s if ranks > 1 else 0.0


def all_reduce_s(layout: Layout, size: float, speeds: Speeds) -> float:
    """One ring through all ranks, as fast as its slowest link: the inverse of bus bandwidth."""
    inner_hops, outer_hops = 2 * layout.nodes * (layout.gpus - 1), 2 * (layout.nodes - 1)
    hops_s = inner_hops * speeds.inner_hop_s + outer_hops * speeds.outer_hop_s
    inner_per_s = speeds.inner_per_s if layout.gpus > 1 else inf
    outer_per_s = speeds.outer_per_s if layout.nodes > 1 else inf
    return ring_s(layout.replicas, size, min(inner_per_s, outer_per_s)) + hops_s


def step(work: Work, speeds: Speeds, layout: Layout, *, uncached: float = 1.0, side: Side = "value") -> Step:
    """One update.  uncached: share of the images that must come from the disk."""
    launch_s = speeds.pass_s * (
        layout.gpus if work.strategy == "dp" else 1
    )  # dp launches the kernels of all GPUs from one process
    computed_s = work.batch * speeds.image_s
    pass_s = max(computed_s, launch_s)
    compute_s = (work.accumulate * pass_s + speeds.update_s) * (1 + speeds.doubling * log2(layout.replicas))
    communication_s, exposed_s = communication(work, speeds, layout, pass_s, side)
    images = work.batch * work.accumulate * layout.gpus
    # Exposed communication is added to the longer of the two, which is the one to shorten.
    computes: Limit = "kernel launches" if launch_s > computed_s else "compute"
    waits = exposed_s > compute_s
    takes: dict[Limit, float] = {
        "JPEG decoding": images / speeds.decoded_per_s,
        work.reads_from: images * work.image_bytes * uncached / speeds.read_per_s,
        computes: compute_s if waits else compute_s + exposed_s,
    }
    if communication_s:
        takes[slowest_link(layout, speeds)] = compute_s + exposed_s if waits else communication_s
    if layout.nodes > 1:
        lasting_s = ring_s(layout.replicas, work.wire_bytes, speeds.lasting_per_s)
        takes["the network"] = max(lasting_s, takes.get("the network", 0.0))
    return Step(compute_s, communication_s, exposed_s, takes)


def slowest_link(layout: Layout, speeds: Speeds) -> Limit:
    """Where a ring through all ranks is slowest: between the GPUs of a machine, or between machines."""
    if layout.nodes == 1 or (layout.gpus > 1 and speeds.inner_per_s < speeds.outer_per_s):
        return "the interconnect"
    return "the network"


def communication(work: Work, speeds: Speeds, layout: Layout, pass_s: float, side: Side) -> tuple[float, float]:
    """Seconds of an update's communication, and those that no backward pass hides."""
    if layout.replicas == 1 or work.strategy == "single":
        return 0.0, 0.0
    if work.strategy == "dp":  # weights out and gradients back, one after the other
        whole = 2 * work.wire_bytes / speeds.inner_per_s
        return whole, whole
    # Weights are gathered twice and gradients scattered once: three halves of an all-reduce.
    volume = 1.5 if work.strategy == "fsdp" else 1.0
    buckets = max(1, -(-work.wire_bytes // work.bucket_bytes))
    hops = all_reduce_s(layout, 0.0, speeds)
    whole = volume * (all_reduce_s(layout, work.wire_bytes, speeds) + (buckets - 1) * hops)
    last = all_reduce_s(layout, _last_bytes(work, side), speeds)
    return whole, min(whole, max(last, whole - BACKWARD * pass_s))


def _last_bytes(work: Work, side: Side) -> float:
    """Bytes of the last bucket, which is complete only after the backward pass and cannot be hidden.

    The table does not have the buckets: at worst nothing is hidden, at best the last bucket is the remainder.
    """
    if side == "worst":
        return work.wire_bytes
    if side == "best":
        return work.wire_bytes % work.bucket_bytes or work.bucket_bytes
    return min(work.wire_bytes, work.bucket_bytes)
