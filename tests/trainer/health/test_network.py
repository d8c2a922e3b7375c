"""The network between the ranks: real sums, and what is said of the figure."""

import time
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.trainer.ranks_here import on_ranks
from trainer.distributed.session import Session
from trainer.errors import MachineError
from trainer.health import network
from trainer.health.network import ROUNDS, Machine, Measured, measure, rounds, slow_ones

SIZES = (2**16, 2**18)


def as_two_nodes(session: Session) -> Session:
    return replace(session, ranks=replace(session.ranks, nodes=2))


def measured(session: Session) -> tuple[Measured | None, Measured | None, str]:
    network.SMALLEST, network.LARGEST = SIZES
    here, there = measure(session), measure(as_two_nodes(session))
    total = torch.distributed.all_reduce

    def damaged(values: torch.Tensor, *args: object, **more: object) -> object:
        done = total(values, *args, **more)
        if session.ranks.rank == 1 and values.numel() > 2:
            values[5] += 1
        return done

    torch.distributed.all_reduce = damaged
    try:
        measure(session)
    except MachineError as error:
        return here, there, str(error)
    return here, there, ""


def test_the_ranks_measure_the_network_and_a_damaged_sum_ends_all_of_them() -> None:
    answers = on_ranks(2, measured)

    for here, there, damage in answers:
        assert here is None  # one machine has no network to measure
        assert there is not None
        assert there.nodes == 2
        assert 0.001 < there.gbps < 1000
        assert damage.startswith("the sum over all ranks is wrong on rank 1: ")
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("gbps", "warns"), [(2.49, True), (2.5, False), (9.0, False)])
def test_less_than_half_of_what_the_catalog_says_is_a_warning(gbps: float, warns: bool) -> None:
    warnings = Measured(gbps, 2).warnings(5.0)
    assert len(warnings) == warns
    assert Measured(0.001, 2).warnings(None) == ()  # without a catalog


SIZE = 2**23  # on a machine that is busy, less would say more of that


def measured_pairs(session: Session, slow: int | None, ranks_per_node: int) -> Measured | None:
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


def test_the_slow_one_of_several_nodes_is_named() -> None:
    """The all-reduce, which is as slow as the slowest, named nobody."""
    answers = on_ranks(3, measured_pairs, 1, 1)

    assert len(set(answers)) == 1
    (warning,) = answers[0].warnings(None)
    assert warning.startswith("node 1 (")
    assert "is usual here" in warning


@pytest.mark.parametrize("machines", [2, 3, 8, 9])
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
