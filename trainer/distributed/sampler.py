"""Which image goes where: the order of an epoch, computed from (seed, epoch) alone.

Because nothing is carried from step to step, k ranks together see the same global batches as one rank
would, and a resumed run goes on with the next image exactly.  How far an epoch has come is counted in
images, not in updates: that means the same to any number of ranks and any size of batch.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from trainer.config import Batches


@dataclass(frozen=True)
class Order:
    """The order in which one epoch of `size` images is visited, and its own source of randomness."""

    size: int
    seed: int
    epoch: int

    @cached_property
    def permutation(self) -> Tensor:
        """(size,) int64 on the CPU: the image at each position of the epoch."""
        return torch.randperm(self.size, generator=self.generator(0))

    def generator(self, stream: int) -> torch.Generator:
        """A CPU generator that depends on seed, epoch and `stream` only; take another stream per purpose."""
        # SplitMix-like spreading: neighbouring seeds and epochs must not give related sequences.
        mixed = (self.seed * 0x9E3779B97F4A7C15 + self.epoch * 0xBF58476D1CE4E5B9 + stream * 0x94D049BB133111EB) % 2**63
        return torch.Generator().manual_seed(mixed)


def updates_left(size: int, done: int, batches: Batches) -> int:
    """Whole updates in what remains of an epoch of `size` images after `done`; the rest waits for the next epoch."""
    return max(0, size - done) // batches.per_update


def positions(batches: Batches, replica: int, replicas_here: int, done: int, updates: int) -> list[slice]:
    """Where this process's images of the next `updates` lie in the epoch's order: one slice per forward pass.

    done: images of the epoch that all ranks together have trained on already; replica: index of this
    process's first replica; replicas_here: how many it drives (more than one only under DataParallel).
    """
    width = batches.per_replica * batches.replicas
    first = done + batches.per_replica * replica
    length = batches.per_replica * replicas_here
    starts = range(first, first + updates * batches.accumulate * width, width)
    return [slice(start, start + length) for start in starts]


def shard(size: int, rank: int, world_size: int) -> range:
    """This rank's unpadded share of `size` evaluation images: every image belongs to exactly one rank."""
    return range(rank, size, world_size)
