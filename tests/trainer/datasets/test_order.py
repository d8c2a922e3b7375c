"""The order of an epoch is a function of seed and epoch, and ranks divide it."""

import random
from dataclasses import dataclass, field

import pytest
import torch

from trainer.config import Batches, TrainConfig, batches_at
from trainer.datasets.order import Order, positions, shard, updates_left


def test_the_order_depends_on_seed_and_epoch_and_nothing_else() -> None:
    first = Order(100, 1, 2).permutation
    torch.manual_seed(99)
    assert torch.equal(Order(100, 1, 2).permutation, first)
    assert not torch.equal(Order(100, 1, 3).permutation, first)
    assert not torch.equal(Order(100, 2, 2).permutation, first)


@dataclass
class Epoch:
    """An epoch as ranks come and go: the places in its order that each of them takes."""

    size: int
    done: int = 0
    taken: list[int] = field(default_factory=list)

    def train(self, batches: Batches, at_most: int) -> None:
        updates = min(at_most, updates_left(self.size, self.done, batches))
        for rank in range(batches.replicas):
            for where in positions(batches, rank, 1, self.done, updates):
                self.taken += range(where.start, where.stop)
        self.done += updates * batches.per_update


@pytest.mark.parametrize("seed", range(60))
def test_over_any_schedule_of_stops_each_image_of_an_epoch_is_seen_once(seed: int) -> None:
    """1 to 8 ranks, any batch, accumulation and ramp, and any of them may change at each stop."""
    choose = random.Random(seed)
    size, ramp = choose.randrange(300, 3000), {0: 24, 1: choose.choice([48, 96]), 2: 192}
    for number in range(3):
        epoch = Epoch(size)
        stops = [choose.randrange(0, 12) for _ in range(choose.randrange(6))]
        for at_most in (*stops, size):
            world_size, accumulate = choose.randint(1, 8), choose.randint(1, 4)
            if choose.random() < 0.5 and ramp[number] % (world_size * accumulate) == 0:
                settings = TrainConfig(batch_ramp=ramp, accumulate=accumulate)
            else:
                settings = TrainConfig(batch_size=choose.randint(1, 9), accumulate=accumulate)
            batches = batches_at(settings, number, world_size)
            epoch.train(batches, at_most)
        assert sorted(epoch.taken) == list(range(epoch.done))  # each once, and none left out
        assert size - epoch.done < batches.per_update  # but what does not fill an update


@pytest.mark.parametrize("seed", range(10))
def test_a_stop_anywhere_changes_nothing_for_the_ranks_that_stay(seed: int) -> None:
    choose = random.Random(seed)
    batches = Batches(choose.randint(1, 9), choose.randint(1, 4), choose.randint(1, 8))
    size, rank = choose.randrange(300, 3000), choose.randrange(batches.replicas)
    updates = updates_left(size, 0, batches)
    stop = choose.randint(0, updates)
    unbroken = positions(batches, rank, 1, 0, updates)
    later = positions(batches, rank, 1, stop * batches.per_update, updates - stop)
    assert positions(batches, rank, 1, 0, stop) + later == unbroken


def test_dataparallel_drives_several_replicas_from_one_process() -> None:
    assert positions(Batches(4, 1, 2), 0, 2, 0, 2) == [slice(0, 8), slice(8, 16)]


def test_only_whole_updates_count() -> None:
    assert updates_left(1003, 0, Batches(32, 2, 4)) == 3
    assert updates_left(64, 80, Batches(16, 1, 1)) == 0, "the images became fewer"


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_evaluation_shares_are_disjoint_and_complete(world_size: int) -> None:
    shares = [shard(1003, rank, world_size) for rank in range(world_size)]
    assert sorted(i for share in shares for i in share) == list(range(1003))
