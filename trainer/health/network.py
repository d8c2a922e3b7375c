"""Measurement of the network between the machines: an all-reduce over all ranks, and exchanges between pairs."""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from trainer.distributed.session import Session
from trainer.errors import MachineError
from trainer.metrics.probe import bus_bandwidth, seconds_of

# Sizes of the all-reduce in bytes.  They grow until one takes LONG_ENOUGH_S, so that the check is short on a slow
# network and measures more than latency on a fast one.
SMALLEST, LARGEST, GROWTH, LONG_ENOUGH_S = 2**20, 2**28, 4, 0.05
SUMS = 3
# Share of the expected bandwidth below which the user is warned.  No machine is replaced for it: other traffic and used
# network credits lower the result too, of two machines one cannot tell which is slow, a new one is often in the same
# place, and a slow training is still correct.
ENOUGH = 0.5
# Each machine is tried with at most this many partners: enough to distinguish it from a slow partner.
ROUNDS = 3
# Share of the median bandwidth below which a machine is reported as slow.
SLOW = 0.5
TRIES = 4  # of which the fastest counts, so that a short disturbance does not matter


@dataclass(frozen=True)
class Measured:
    """The result of the network measurement."""

    gbps: float  # bus bandwidth between machines in Gbit/s
    nodes: int
    slow: tuple[str, ...] = ()  # a sentence for each slow machine

    def sentence(self) -> str:
        return f"all-reduce between {self.nodes} nodes: {self.gbps:.3g} Gbit/s"

    def warnings(self, expected_gbps: float | None) -> tuple[str, ...]:
        """Warnings about a network much slower than expected, and about machines slower than the others."""
        if expected_gbps is None or self.gbps >= ENOUGH * expected_gbps:
            return self.slow
        return (
            f"the {self.nodes} nodes exchange {self.gbps:.3g} Gbit/s, less than half of the {expected_gbps:g} Gbit/s "
            "of their type, so the training may wait for the network: check placement group, EFA and other traffic, "
            "or send less with --comm-hook.",
            *self.slow,
        )


def measure(session: Session) -> Measured | None:
    """The bandwidth between the machines, or None if there is only one.  Collective.

    Raises MachineError on all ranks if a sum is wrong.
    """
    return measure_connected(session) if session.link else None


def measure_connected(session: Session) -> Measured | None:
    """Like measure(), for ranks that are connected."""
    world, wrong, fastest = session.ranks.world_size, False, 0.0
    for size in _sizes():
        sums = [_sum(session, size) for _ in range(SUMS)]
        wrong = wrong or not all(is_right for _, is_right in sums)
        (quickest,) = session.highest([min(seconds for seconds, _ in sums)])  # ranks wait for the slowest
        fastest = bus_bandwidth(world, size, quickest) * 8
        if quickest >= LONG_ENOUGH_S:
            break
    _refuse_wrong(session, wrong)
    nodes = session.ranks.nodes
    if nodes == 1:
        return None
    # Of two machines one cannot tell which is slow.
    return Measured(fastest, nodes, tuple(slow_ones(measure_pairs(session, size))) if nodes > 2 else ())


def _sum(session: Session, size: int) -> tuple[float, bool]:
    """Seconds for an all-reduce of `size` bytes, and whether the result is correct on this rank.  Collective."""
    world = session.ranks.world_size
    values = torch.full((size // 4,), session.ranks.rank + 1.0, device=session.device)
    seconds = seconds_of(lambda: session.sum(values), session)
    return seconds, bool((values == world * (world + 1) / 2).all())  # a whole number, exact in float32


def _sizes() -> Iterator[int]:
    size = SMALLEST
    while size <= LARGEST:
        yield size
        size *= GROWTH


def _refuse_wrong(session: Session, wrong: bool) -> None:
    ranks = [str(rank) for rank, was_wrong in enumerate(session.gather(wrong)) if was_wrong]
    if ranks:
        raise MachineError(
            f"the sum over all ranks is wrong on rank {', '.join(ranks)}: a GPU or the network between them "
            "damages data; start again, on other machines if it happens again."
        )


@dataclass(frozen=True)
class Machine:
    """The measured bandwidth of one machine."""

    node: int
    rank: int  # its first rank
    host: str
    gbps: float  # with the fastest of its partners, in each direction


def measure_pairs(session: Session, size: int) -> list[Machine]:
    """Measure the bandwidth of each machine by exchanging `size` bytes.  Collective; one rank per machine exchanges."""
    ranks = session.ranks
    gathered = session.gather([ranks.node_rank, ranks.rank, socket.gethostname()] if ranks.local_rank == 0 else None)
    firsts = sorted((node, rank, host) for node, rank, host in filter(None, gathered))
    index = next((index for index, (_, rank, _) in enumerate(firsts) if rank == ranks.rank), None)
    fastest = 0.0
    for pairs in rounds(len(firsts))[:ROUNDS]:
        partner = None if index is None else pairs.get(index)
        seconds = _exchange(session, None if partner is None else firsts[partner][1], size)
        if partner is not None:
            fastest = max(fastest, size * 8 / seconds / 1e9)
    gbps = session.gather(fastest)
    return [Machine(node, rank, host, gbps[rank]) for node, rank, host in firsts]


def rounds(machines: int) -> list[dict[int, int]]:
    """Partners by machine in each round of a round-robin tournament; with an odd number, one has none per round."""
    circle = list(range(machines + machines % 2))
    found = []
    for _ in circle[1:]:
        halves = zip(circle[: len(circle) // 2], reversed(circle[len(circle) // 2 :]), strict=True)
        pairs = [pair for pair in halves if max(pair) < machines]
        found.append({one: other for pair in pairs for one, other in (pair, pair[::-1])})
        circle = [circle[0], circle[-1], *circle[1:-1]]  # the circle method: the first stays, the others rotate
    return found


def _exchange(session: Session, partner: int | None, size: int) -> float:
    """Seconds to send and receive `size` bytes to and from `partner`, the fastest of TRIES.  Collective."""
    out, back = (torch.zeros(size // 4, device=session.device) for _ in range(2))

    def both_ways() -> None:
        if partner is not None:
            operations = [dist.P2POp(dist.isend, out, partner), dist.P2POp(dist.irecv, back, partner)]
            for work in dist.batch_isend_irecv(operations):
                work.wait()

    return min(seconds_of(both_ways, session) for _ in range(TRIES))


def slow_ones(machines: Sequence[Machine]) -> list[str]:
    """A sentence for each machine that is much slower than the others."""
    usual = median(machine.gbps for machine in machines)
    return [
        f"node {machine.node} ({machine.host}) exchanges at most {machine.gbps:.3g} Gbit/s with any other node, while "
        f"{usual:.3g} Gbit/s is usual here: all others wait for it; check its network, or start without it."
        for machine in machines
        if machine.gbps < SLOW * usual
    ]
