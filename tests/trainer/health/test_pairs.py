"""A machine that is slow on the network is named, and its partners are not: real exchanges between real processes."""

import time
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch.distributed as dist

from tests.trainer.ranks_here import on_ranks
from trainer.distributed.session import Session
from trainer.health import network
from trainer.health.network import Measured, measure
from trainer.health.pairs import ROUNDS, Machine, rounds, slow_ones

SIZE = 2**23  # on a machine that is busy, less would say more of that


def measured(session: Session, slow: int | None, ranks_per_node: int) -> Measured | None:
    """As on nodes of so many ranks, of which one takes half a second more for every exchange."""
    network.SMALLEST = network.LARGEST = SIZE
    node, local = divmod(session.ranks.rank, ranks_per_node)
    places = {"node_rank": node, "local_rank": local, "nodes": session.ranks.world_size // ranks_per_node}
    exchange = dist.batch_isend_irecv

    def late(operations: list[Any]) -> Any:
        if node == slow:
            time.sleep(0.5)
        return exchange(operations)

    dist.batch_isend_irecv = late
    return measure(replace(session, ranks=replace(session.ranks, **places)))


@pytest.mark.parametrize(("world", "ranks_per_node", "slow"), [(3, 1, 2), (6, 2, 1)])
def test_the_slow_one_of_several_nodes_is_named(world: int, ranks_per_node: int, slow: int) -> None:
    """The all-reduce, which is as slow as the slowest, named nobody."""
    answers = on_ranks(world, measured, slow, ranks_per_node)

    assert len(set(answers)) == 1
    (warning,) = answers[0].warnings(None)
    assert warning.startswith(f"node {slow} (")
    assert "where" in warning


def test_two_nodes_are_not_told_apart() -> None:
    for answer in on_ranks(2, measured, 1, 1):
        assert answer.warnings(None) == ()


@pytest.mark.parametrize("machines", [2, 3, 4, 5, 8, 9, 64])
def test_all_machines_meet_each_other_once_and_in_the_rounds_that_are_played_several(machines: int) -> None:
    played = rounds(machines)

    assert all(pairs[other] == one for pairs in played for one, other in pairs.items())
    assert sorted(pair for pairs in played for pair in pairs.items() if pair[0] < pair[1]) == list(
        combinations(range(machines), 2)
    )
    if machines > 2:
        assert all(sum(one in pairs for pairs in played[:ROUNDS]) >= 2 for one in range(machines))


def test_machines_that_differ_little_are_not_named() -> None:
    machines = [Machine(node, node, "host", gbps) for node, gbps in enumerate((9.5, 10.0, 5.1, 10.2))]

    assert slow_ones(machines) == []
    assert len(slow_ones([*machines, Machine(4, 4, "host", 4.0)])) == 1
