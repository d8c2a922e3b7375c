"""Random images generated once on the device, to measure compute alone: nothing is read, copied or augmented."""

from collections.abc import Generator, Sequence
from math import ceil

import torch
from torch import Tensor

from trainer.datasets import SMALL_PX
from trainer.datasets.base import Batch, Data, Request, Signature
from trainer.datasets.order import Order

POOL_BYTES = 64 * 2**20
POOL_IMAGES = 4096
EVALUATION_SHARE = 10


def load(request: Request) -> Data:
    """Noise with random labels; a tenth as many images for evaluation."""
    side = request.image_size or SMALL_PX
    pool = _pool(request, side)
    return Data(
        SyntheticSplit(request.synthetic_images, pool),
        SyntheticSplit(ceil(request.synthetic_images / EVALUATION_SHARE), pool),
        Signature(tuple(map(str, range(request.synthetic_classes))), side, mean=(0, 0, 0), std=(1, 1, 1)),
    )


def _pool(request: Request, side: int) -> Batch:
    """The pool of images that epochs repeat; depends on the seed, not on the device."""
    generator = torch.Generator().manual_seed(request.seed)
    count = max(1, min(POOL_IMAGES, POOL_BYTES // (3 * side * side * 4)))
    memory = torch.channels_last if request.channels_last else torch.contiguous_format
    images = torch.randn(count, 3, side, side, generator=generator)
    labels = torch.randint(0, request.synthetic_classes, (count,), generator=generator)
    return Batch(images.to(request.device, memory_format=memory), labels.to(request.device))


class SyntheticSplit:
    """Split that repeats a small pool of images: position p of any epoch is image p modulo the pool's size."""

    bad_images: Sequence[str] = ()

    def __init__(self, size: int, pool: Batch) -> None:
        self.size = size
        self._pool = pool

    def train_batches(self, order: Order, positions: Sequence[slice]) -> Generator[Batch]:
        """Batches that are views of the pool, so a step costs no copying."""
        longest = max((p.stop - p.start for p in positions), default=0)
        count = len(self._pool.labels)
        images, labels = (_repeated(tensor, count + longest) for tensor in self._pool)
        for position in positions:
            start = position.start % count
            stop = start + position.stop - position.start
            yield Batch(images[start:stop], labels[start:stop])

    def eval_batches(self, indices: range, batch_size: int) -> Generator[Batch]:
        """The images `indices` of the repeated pool."""
        images, labels = self._pool
        for start in range(0, len(indices), batch_size):
            chunk = indices[start : start + batch_size]
            numbers = torch.arange(chunk.start, chunk.stop, chunk.step, device=labels.device) % len(labels)
            yield Batch(images[numbers], labels[numbers])


def _repeated(tensor: Tensor, length: int) -> Tensor:
    """`length` rows that repeat those of `tensor`, so that a batch that wraps around is still one view."""
    return torch.cat([tensor] * ceil(length / len(tensor)))[:length]
