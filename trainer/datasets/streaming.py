"""Large images, decoded during training by threads, or for a GPU by processes.

The crop and mirroring of an image depend only on seed, epoch and position, so the number of threads, processes or ranks
does not change what is trained on.
"""

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.config import side_at
from trainer.datasets.base import IMAGENET, UNREADABLE, Batch, Data, Request, Signature
from trainer.datasets.decode import Normaliser
from trainer.datasets.encoded import UnreadableError, refuse_too_many
from trainer.datasets.order import MIDDLE, Crops, Order, View
from trainer.datasets.processes import CHUNK as TASK
from trainer.datasets.processes import Processes, Task, gathered
from trainer.datasets.rows import ByteRows, FloatRows, GpuRows, Memory, Rows, check_gpu_decodes
from trainer.datasets.source import Halves, Source, read
from trainer.errors import SettingsError

SIDE = 224
AHEAD = 3  # batches prefetched
CHUNK = 4  # minimum number of images per thread task: fewer cost more to schedule than to decode


class Image(NamedTuple):
    """One image of a batch: its number, crop and mirroring."""

    number: int
    view: View


class UnfinishedBatch:
    """A batch that threads are still filling."""

    def __init__(self, numbers: list[int], labels: Tensor, rows: Rows) -> None:
        self.numbers, self.labels, self.rows = numbers, labels, rows
        self.bad: dict[int, str] = {}  # unreadable rows, and why
        self.parts: list[Future[None]] = []

    def finish(self) -> None:
        """Wait until all rows are filled.  Unreadable ones become copies of a readable image."""
        wait(self.parts, return_when=FIRST_EXCEPTION)  # one wake-up instead of one per part
        for part in self.parts:
            part.result()
        self.bad.update(self.rows.settle())
        good = next((row for row in range(len(self.labels)) if row not in self.bad), None)
        for row in self.bad:
            self.rows.copy(row, good)  # rather than black, which would distort batch norm


class StreamingSplit:
    """Split whose images are read from `source` each time they are needed."""

    def __init__(self, source: Source, size: int, request: Request, processes: Processes | None = None) -> None:
        self.size = source.size
        self._processes = processes
        self._source, self._full, self._side, self._request = source, size, size, request
        self._normalise = self._normaliser(size)
        self._memory = Memory()
        self._bad: dict[str, str] = {}  # unreadable images by name, and why

    def train_batches(self, order: Order, positions: Sequence[slice]) -> Generator[Batch]:
        """Randomly cropped and mirrored batches: the images at `positions` of `order`, at its epoch's image size."""
        self._resize(side_at(order.epoch, self._request.epochs, self._request.first_size, self._full))
        permutation = self._source.permutation(order)
        numbers = [permutation[p] for p in positions]
        randomly = replace(order) if self._request.augment else None  # without the permutation, which is large
        return self._batches(numbers, [Crops(randomly, range(p.start, p.stop)) for p in positions])

    def eval_batches(self, indices: range, batch_size: int) -> Generator[Batch]:
        """Centre crops of the images `indices`."""
        chunks = (indices[start : start + batch_size] for start in range(0, len(indices), batch_size))
        numbers = [torch.tensor(chunk) for chunk in chunks]
        return self._batches(numbers, [Crops(None, range(len(chosen))) for chosen in numbers])

    @property
    def bad_images(self) -> Sequence[str]:
        """Names of the images this process has skipped so far."""
        return tuple(self._bad)

    def _batches(self, numbers: Sequence[Tensor], crops: Sequence[Crops]) -> Generator[Batch]:
        """One batch for each tensor of numbers, decoded ahead of use until the iterator is closed."""
        if not numbers:
            return
        with self._source.reading(torch.cat(list(numbers))):
            if self._processes is None:
                yield from self._by_threads(numbers, crops)
            else:
                yield from self._by_processes(self._processes, numbers, crops)

    def _by_processes(
        self, processes: Processes, numbers: Sequence[Tensor], crops: Sequence[Crops]
    ) -> Generator[Batch]:
        with closing(processes.decode(self._tasks(numbers, crops))) as decoded:
            for chosen in numbers:
                # Keep no reference: a process reuses the memory of a part once that is deleted.
                parts = (next(decoded) for _ in range(0, len(chosen), TASK))
                pixels, bad = gathered([*parts], self._normalise, self._request.device)
                images = chosen.tolist()
                for number in images:
                    self._source.give_back(number)
                yield self._batch(images, pixels, self._labels(images), bad)

    def _tasks(self, numbers: Sequence[Tensor], crops: Sequence[Crops]) -> Iterator[Task]:
        """The tasks for the processes.  Each is made just before it is sent, so that its images are fetched by then."""
        for chosen, cropped in zip(numbers, crops, strict=True):
            for start in range(0, len(chosen), TASK):
                rows = range(start, min(start + TASK, len(chosen)))
                pieces = tuple(self._source.lend(number) for number in chosen[rows.start : rows.stop].tolist())
                yield Task(pieces, cropped.of(rows), self._side)

    def _by_threads(self, numbers: Sequence[Tensor], crops: Sequence[Crops]) -> Generator[Batch]:
        unfinished: deque[UnfinishedBatch] = deque()
        threads = ThreadPoolExecutor(self._request.workers, thread_name_prefix="decode")
        try:
            for chosen, cropped in zip(numbers, crops, strict=True):
                unfinished.append(self._start(threads, [*map(Image, chosen.tolist(), cropped.views())]))
                if len(unfinished) > AHEAD:
                    yield self._finish(unfinished.popleft())
            while unfinished:
                yield self._finish(unfinished.popleft())
        finally:
            threads.shutdown(cancel_futures=True)

    def _start(self, threads: ThreadPoolExecutor, images: list[Image]) -> UnfinishedBatch:
        numbers = [image.number for image in images]
        batch = UnfinishedBatch(numbers, self._labels(numbers), self._rows(len(images)))
        chunks = chunks_of(len(images), self._request.workers)
        batch.parts = [threads.submit(self._fill, batch, images, chunk) for chunk in chunks]
        return batch

    def _resize(self, side: int) -> None:
        if side != self._side:
            self._side, self._normalise = side, self._normaliser(side)

    def _normaliser(self, side: int) -> Normaliser:
        return Normaliser(IMAGENET, side, self._request.device, self._request.channels_last)

    def _rows(self, count: int) -> Rows:
        request = self._request
        if request.decodes_on_gpu:
            return GpuRows(count, self._side, self._normalise, request.device)
        if request.device.type == "cpu":
            return FloatRows(count, self._side, self._normalise, self._memory, request.channels_last)
        return ByteRows(count, self._side, self._normalise, request.device)

    def _fill(self, batch: UnfinishedBatch, images: list[Image], rows: range) -> None:
        """Read the images of `rows`; runs in a thread."""
        for row in rows:
            number, view = images[row]
            try:
                batch.rows.put(row, read(self._source, number), view)
            except UnreadableError as error:
                batch.bad[row] = str(error)

    def _finish(self, batch: UnfinishedBatch) -> Batch:
        batch.finish()
        return self._batch(batch.numbers, batch.rows.images(), batch.labels, batch.bad)

    def _labels(self, numbers: list[int]) -> Tensor:
        labels = [self._source.label(number) for number in numbers]
        return torch.tensor(labels, pin_memory=self._request.device.type == "cuda")

    def _batch(self, numbers: list[int], images: Tensor, labels: Tensor, bad: Mapping[int, str]) -> Batch:
        """Assemble a batch.  bad: unreadable rows, and why; they get the label UNREADABLE.

        Raises DataError if there are too many of them.
        """
        for row in bad:
            labels[row] = UNREADABLE
        self._bad.update({self._source.shown(numbers[row]): why for row, why in bad.items()})
        refuse_too_many(dict(self._bad), self._request.max_bad_images)
        return Batch(images, labels.to(self._request.device, non_blocking=True))


def chunks_of(images: int, threads: int) -> list[range]:
    """The rows of a batch split into thread tasks, two per thread, so that all stay busy until it is complete."""
    rows, size = range(images), max(CHUNK, images // (2 * threads))
    return [rows[start : start + size] for start in rows[::size]]


def stream(request: Request, found: Halves, size: int) -> Data:
    """Both splits as streams of images of `size` pixels.

    Raises SettingsError if the first size is not smaller, or if the GPU cannot decode.
    """
    if request.decodes_on_gpu:
        check_gpu_decodes(request.device)
    if request.first_size is not None and request.first_size >= size:
        raise SettingsError(
            f"--image-size-start {request.first_size} must be less than the final size of {size} pixels; lower it, or "
            "raise --image-size."
        )
    pinned = request.device.type == "cuda"
    processes = Processes(request.workers, pinned) if request.by_processes else None
    return Data(
        StreamingSplit(found.train, size, request, processes),
        StreamingSplit(found.evaluation, size, request, processes),
        Signature(found.classes, size, IMAGENET.mean, IMAGENET.std, MIDDLE),
        found.eval_split,
    )
