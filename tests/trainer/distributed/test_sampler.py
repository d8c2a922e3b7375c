"""The order of an epoch is a function of seed and epoch, and ranks divide it."""

import pytest
import torch

from trainer.config import Batches
from trainer.distributed.sampler import Order, positions, shard, steps_per_epoch


def test_every_image_comes_once_in_an_epoch() -> None:
    assert sorted(Order(100, 0, 0).permutation.tolist()) == list(range(100))


def test_the_order_depends_on_seed_and_epoch_and_nothing_else() -> None:
    first = Order(100, 1, 2).permutation
    torch.manual_seed(99)
    assert torch.equal(Order(100, 1, 2).permutation, first)
    assert not torch.equal(Order(100, 1, 3).permutation, first)
    assert not torch.equal(Order(100, 2, 2).permutation, first)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_ranks_together_see_the_same_global_batch_as_one(replicas: int) -> None:
    batches = Batches(per_replica=8 // replicas, accumulate=1, replicas=replicas)
    second_steps = [positions(batches, rank, 1, 0, 3)[1] for rank in range(replicas)]
    assert [i for where in second_steps for i in range(where.start, where.stop)] == list(range(8, 16))


def test_a_resumed_epoch_goes_on_with_the_next_batch() -> None:
    batches = Batches(per_replica=4, accumulate=2, replicas=2)
    assert positions(batches, 1, 1, 2, 5) == positions(batches, 1, 1, 0, 5)[4:]


def test_dataparallel_drives_several_replicas_from_one_process() -> None:
    assert positions(Batches(4, 1, 2), 0, 2, 0, 2) == [slice(0, 8), slice(8, 16)]


def test_only_whole_updates_count() -> None:
    assert steps_per_epoch(1003, Batches(32, 2, 4)) == 3


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_evaluation_shares_are_disjoint_and_complete(world_size: int) -> None:
    shares = [shard(1003, rank, world_size) for rank in range(world_size)]
    assert sorted(i for share in shares for i in share) == list(range(1003))
