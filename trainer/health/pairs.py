"""Which machine is slow on the network: machines exchange data two by two, each with several others.

An all-reduce is as slow as the slowest of all, and does not say which that is.  A slow machine is slow with every
partner, and a partner of it is quick with another one.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from trainer.distributed.probe import seconds_of
from trainer.distributed.session import Session

# With that many partners, at most, each machine is tried: enough to tell it from a slow one beside it.
ROUNDS = 3
# Of what the others reach in the middle, the share below which a machine is named.
SLOW = 0.5
TRIES = 4  # one that other work of a machine disturbs must not name it


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
