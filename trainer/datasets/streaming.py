"""Big images, decoded while the training runs: threads fill batches of bytes, the device does the rest.

The crop and mirroring of an image depend on the seed, the epoch and its position alone, so neither
the number of threads nor that of ranks changes what is trained on.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.datasets.base import UNREADABLE, Batch, Data, Request
from trainer.datasets.crops import MIDDLE, Crop, keyed_generator, middle_crop, random_crop
from trainer.datasets.decode import crop
from trainer.datasets.normalisation import IMAGENET, Normaliser
from trainer.datasets.source import Halves, Source
from trainer.datasets.unreadable import UnreadableError, refuse_too_many
from trainer.distributed.sampler import Order
from trainer.signature import Signature

SIDE = 224
AHEAD = 3  # batches in the making while one is trained on
CHUNK = 4  # images a thread takes at a time: few, so that a batch is soon whole; not one, for handing over costs


class View(NamedTuple):
    """How to look at one image.  choose: (height, width) -> crop."""

    choose: Callable[[int, int], Crop]
    mirrored: bool


class Wanted(NamedTuple):
    """One image of a batch: its number, and how to look at it."""

    number: int
    view: View


class UnfinishedBatch:
    """A batch in the making.  Each thread writes rows of its own, so nothing needs a lock."""

    def __init__(self, labels: list[int], size: int, pinned: bool) -> None:
        count = len(labels)
        self.pixels = torch.empty((count, size, size, 3), dtype=torch.uint8, pin_memory=pinned)
        self.labels = torch.tensor(labels, pin_memory=pinned)
        self.mirrored = torch.zeros(count, dtype=torch.bool, pin_memory=pinned)
        self.bad_rows: list[int] = []
        self.parts: list[Future[None]] = []

    def finish(self) -> None:
        """Waits until it is full.  Unreadable images become copies of a readable one that weigh nothing."""
        for part in self.parts:
            part.result()
        good = next((row for row in range(len(self.labels)) if row not in self.bad_rows), None)
        for row in self.bad_rows:
            # A copy rather than black, for batch norm's sake.
            self.pixels[row] = 0 if good is None else self.pixels[good]
            self.labels[row] = UNREADABLE


class StreamingSplit:
    """Split whose images are read from `source` each time they are needed."""

    def __init__(self, source: Source, size: int, request: Request) -> None:
        self.size = source.size
        self._source, self._side, self._request = source, size, request
        self._normalise = Normaliser(IMAGENET, size, request.device, request.channels_last)
        self._bad: dict[str, str] = {}  # why, by name; threads add to it

    def train_batches(self, order: Order, positions: Sequence[slice]) -> Generator[Batch]:
        """Randomly cropped and mirrored batches: the images at `positions` of `order`."""
        view = random_view if self._request.augment else middle_view
        permutation = self._source.permutation(order)
        numbers = [permutation[p] for p in positions]
        return self._batches(numbers, lambda batch, row: view(order, positions[batch].start + row))

    def eval_batches(self, indices: range, batch_size: int) -> Generator[Batch]:
        """The middles of the images `indices`."""
        middle = View(middle_crop, False)
        chunks = (indices[start : start + batch_size] for start in range(0, len(indices), batch_size))
        numbers = [torch.tensor(chunk) for chunk in chunks]
        return self._batches(numbers, lambda batch, row: middle)

    @property
    def bad_images(self) -> Sequence[str]:
        """Names of the files this process has skipped up to now."""
        return tuple(self._bad)

    def _batches(self, numbers: Sequence[Tensor], view: Callable[[int, int], View]) -> Generator[Batch]:
        """One batch for each tensor of numbers, decoded AHEAD of their use.  Closing the iterator ends the threads.

        view: (batch, row within it) -> how to look at that image.
        """
        if not numbers:
            return
        unfinished: deque[UnfinishedBatch] = deque()
        with self._source.reading(torch.cat(list(numbers))):
            threads = ThreadPoolExecutor(self._request.workers, thread_name_prefix="decode")
            try:
                for batch, chosen in enumerate(numbers):
                    images = [Wanted(number, view(batch, row)) for row, number in enumerate(chosen.tolist())]
                    unfinished.append(self._start(threads, images))
                    if len(unfinished) > AHEAD:
                        yield self._finish(unfinished.popleft())
                while unfinished:
                    yield self._finish(unfinished.popleft())
            finally:
                threads.shutdown(cancel_futures=True)

    def _start(self, threads: ThreadPoolExecutor, images: list[Wanted]) -> UnfinishedBatch:
        labels = [self._source.label(image.number) for image in images]
        batch = UnfinishedBatch(labels, self._side, self._request.device.type == "cuda")
        rows = range(len(images))
        chunks = [rows[start : start + CHUNK] for start in rows[::CHUNK]]
        batch.parts = [threads.submit(self._fill, batch, images, chunk) for chunk in chunks]
        return batch

    def _fill(self, batch: UnfinishedBatch, images: list[Wanted], rows: range) -> None:
        """Reads the images of `rows`; runs in a thread."""
        pixels = batch.pixels.numpy()
        for row in rows:
            number, view = images[row]
            try:
                pixels[row] = crop(self._source.read(number), view.choose, self._side)
            except UnreadableError as error:
                batch.bad_rows.append(row)
                self._bad[self._source.shown(number)] = str(error)
            batch.mirrored[row] = view.mirrored

    def _finish(self, batch: UnfinishedBatch) -> Batch:
        batch.finish()
        refuse_too_many(dict(self._bad), self._request.max_bad_images)
        pixels, labels, mirrored = (
            tensor.to(self._request.device, non_blocking=True)
            for tensor in (batch.pixels, batch.labels, batch.mirrored)
        )
        return Batch(self._normalise(mirror(pixels, mirrored)), labels)


def random_view(order: Order, position: int) -> View:
    """The look that training takes at this position of the epoch."""
    rng = keyed_generator(order, position)
    mirrored = bool(rng.random() < 0.5)
    return View(lambda height, width: random_crop(height, width, rng), mirrored)


def middle_view(order: Order, position: int) -> View:
    """The look that training takes without augmentation."""
    return View(middle_crop, False)


def mirror(pixels: Tensor, mirrored: Tensor) -> Tensor:
    """(B, S, S, 3), with the images where `mirrored` (B,) is true flipped left to right."""
    # Picking whole images is 5 times faster on a CPU than torch.where, and needs no look at the mask as [mask] does.
    both = torch.cat([pixels, pixels.flip(2)])
    return both.index_select(0, torch.arange(len(pixels), device=pixels.device) + mirrored * len(pixels))


def stream(request: Request, found: Halves, size: int) -> Data:
    """Both splits of what was found, at `size` pixels."""
    return Data(
        StreamingSplit(found.train, size, request),
        StreamingSplit(found.evaluation, size, request),
        Signature(found.classes, size, IMAGENET.mean, IMAGENET.std, MIDDLE),
    )
