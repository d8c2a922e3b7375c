"""An order of images that reads a few shards at a time: shards in random order, the images of a window of them mixed.

It is a pure function of seed, epoch, the shards and the window, as the order over the whole set is of seed and epoch.
So all that holds there holds here: exact resume, the same batches for any number of ranks, each image once.  The shards
must be samples of the whole set, as trainer.prepare makes them.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trainer.distributed.sampler import Order

STREAM = 2  # of the order's random numbers: 0 is the whole permutation's, 1 the augmentation's of small images


def bounded_permutation(order: Order, by_shard: Sequence[Tensor], window: int) -> Tensor:
    """(size,) int64: the image at each position of the epoch.  by_shard: the numbers of each shard's images."""
    return torch.cat(list(_windows(order.generator(STREAM), by_shard, window)))


def _windows(generator: torch.Generator, by_shard: Sequence[Tensor], window: int) -> Iterator[Tensor]:
    for shards in torch.randperm(len(by_shard), generator=generator).split(window):
        numbers = torch.cat([by_shard[shard] for shard in shards.tolist()])
        yield numbers[torch.randperm(len(numbers), generator=generator)]
