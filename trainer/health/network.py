"""How much the machines can send each other: an all-reduce over all ranks, as the training's own, measured."""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from trainer.distributed.session import Session
from trainer.errors import MachineError
from trainer.metrics.probe import bus_bandwidth, seconds_of

# Bytes that are summed, four times as many each time until a sum takes LONG_ENOUGH_S: so that neither a slow network
# makes the check long nor a fast one is measured by its latency.
SMALLEST, LARGEST, GROWTH, LONG_ENOUGH_S = 2**20, 2**28, 4, 0.05
SUMS = 3
# Of what the network should carry, the share below which the user is warned.  No machine is replaced for it: the
# figure falls with other traffic and with credits that are used up, of two machines none can be called the slow one, a
# new one mostly stands in the same place, and a slow training is right nevertheless.
ENOUGH = 0.5
# With that many partners, at most, each machine is tried: enough to tell it from a slow one beside it.
ROUNDS = 3
# Of what the others reach in the middle, the share below which a machine is named.
SLOW = 0.5
TRIES = 4  # one that other work of a machine disturbs must not name it


@dataclass(frozen=True)
class Measured:
    """gbps: bus bandwidth between machines in Gbit/s; nodes: how many; slow: a sentence for each slow one."""

    gbps: float
    nodes: int
    slow: tuple[str, ...] = ()

    def sentence(self) -> str:
        return f"all-reduce between {self.nodes} nodes: {self.gbps:.3g} Gbit/s"

    def warnings(self, expected_gbps: float | None) -> tuple[str, ...]:
        """Warnings of a network that carries much less than it should, and of machines slower than the others."""
        if expected_gbps is None or self.gbps >= ENOUGH * expected_gbps:
            return self.slow
        return (
            f"the {self.nodes} nodes exchange {self.gbps:.3g} Gbit/s, less than half of the {expected_gbps:g} Gbit/s "
            "of their type, so the training may wait for the network: check placement group, EFA and other traffic, "
            "or send less with --comm-hook.",
            *self.slow,
        )


def measure(session: Session) -> Measured | None:
    """The bandwidth between the machines; None where there is one alone.  Collective.

    Raises MachineError where a sum is wrong, on all ranks.
    """
    return measure_connected(session) if session.link else None


def measure_connected(session: Session) -> Measured | None:
    """measure() for ranks that are connected."""
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
    # Of two none can be called the slow one.
    return Measured(fastest, nodes, tuple(slow_ones(measure_pairs(session, size))) if nodes > 2 else ())


def _sum(session: Session, size: int) -> tuple[float, bool]:
    """Seconds that the ranks take to sum `size` bytes, and whether the result is right on this one.  Collective."""
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
            f"the sum over all ranks came out wrong on rank {', '.join(ranks)}: a GPU or the network between them "
            "damages data; start again, on other machines if it happens again."
        )


@dataclass(frozen=True)
class Machine:
    """rank: its first; gbps: the most that it exchanged with any of its partners, in each direction."""

    node: int
    rank: int
    host: str
    gbps: float


def measure_pairs(session: Session, size: int) -> list[Machine]:
    """Measures what each machine can exchange, `size` bytes at a time.  Collective; one rank of each takes part."""
    ranks = session.ranks
    told = session.gather([ranks.node_rank, ranks.rank, socket.gethostname()] if ranks.local_rank == 0 else None)
    firsts = sorted((node, rank, host) for node, rank, host in filter(None, told))
    mine = next((place for place, (_, rank, _) in enumerate(firsts) if rank == ranks.rank), None)
    fastest = 0.0
    for pairs in rounds(len(firsts))[:ROUNDS]:
        partner = None if mine is None else pairs.get(mine)
        seconds = _exchange(session, None if partner is None else firsts[partner][1], size)
        if partner is not None:
            fastest = max(fastest, size * 8 / seconds / 1e9)
    gbps = session.gather(fastest)
    return [Machine(node, rank, host, gbps[rank]) for node, rank, host in firsts]


def rounds(machines: int) -> list[dict[int, int]]:
    """The pairs, both ways, in each round of a tournament in which all meet; with an odd number one rests."""
    places = list(range(machines + machines % 2))
    found = []
    for _ in places[1:]:
        halves = zip(places[: len(places) // 2], reversed(places[len(places) // 2 :]), strict=True)
        met = [pair for pair in halves if max(pair) < machines]
        found.append({one: other for pair in met for one, other in (pair, pair[::-1])})
        places = [places[0], places[-1], *places[1:-1]]  # the first stays, the others move on by one
    return found


def _exchange(session: Session, partner: int | None, size: int) -> float:
    """Seconds until `size` bytes have gone to `partner` and as many have come: the quickest of TRIES.  Collective."""
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
        f"node {machine.node} ({machine.host}) exchanges {machine.gbps:.3g} Gbit/s at most, with any other node, where "
        f"{usual:.3g} Gbit/s are usual here: all wait for it; look at its network, or start without it."
        for machine in machines
        if machine.gbps < SLOW * usual
    ]
