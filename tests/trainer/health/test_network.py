"""The network between the ranks: real sums, and what is said of the figure."""

from dataclasses import replace

import pytest
import torch

from tests.trainer.ranks_here import alone, on_ranks
from trainer.distributed.session import Session
from trainer.errors import MachineError
from trainer.health import network
from trainer.health.network import Measured, measure, measure_connected

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
        assert damage.startswith("the sum over all ranks came out wrong on rank 1: ")
    assert answers[0] == answers[1]


def test_a_process_alone_has_nothing_to_measure() -> None:
    assert measure(alone()) is None


@pytest.mark.parametrize(("gbps", "warns"), [(2.49, True), (2.5, False), (9.0, False)])
def test_less_than_half_of_what_the_catalog_says_is_a_warning(gbps: float, warns: bool) -> None:
    warnings = Measured(gbps, 2).warnings(5.0)
    assert len(warnings) == warns
    assert all("2.49 Gbit/s, less than half of the 5 Gbit/s" in warning for warning in warnings)


def test_without_a_catalog_there_is_no_warning() -> None:
    assert Measured(0.001, 2).warnings(None) == ()


def test_a_slow_network_is_measured_with_little_and_a_fast_one_with_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 50 Mbit/s a MiB takes a third of a second, and 256 MiB would take a minute and a half."""
    sizes: list[int] = []

    def at(gbps: float) -> float:
        sizes.clear()

        def summed(session: Session, size: int) -> tuple[float, bool]:
            sizes.append(size)
            return size * 8 / gbps / 1e9, True

        monkeypatch.setattr(network, "_sum", summed)
        session = Session(replace(alone().ranks, world_size=2, nodes=2), torch.device("cpu"), 1.0)
        found = measure_connected(session)
        assert found is not None
        return found.gbps

    assert at(0.05) == pytest.approx(0.05)
    assert set(sizes) == {2**20}
    assert at(100) == pytest.approx(100)
    assert max(sizes) == 2**28
