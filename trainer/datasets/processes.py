"""Decode images in worker processes of torch's DataLoader, for trainings on a GPU.

Threads would share the interpreter lock with the code that launches the GPU's kernels: sixteen of them made a step of
ResNet-18 nine times as long on an H100, and decoded less than as many processes (tests/bench/RESULTS.md).

The processes are forked from a server without CUDA or threads, not from the training process, and end with that.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import warnings
import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from multiprocessing import forkserver, util
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainer.datasets.decode import Normaliser
from trainer.datasets.encoded import UnreadableError
from trainer.datasets.order import Crops
from trainer.datasets.rows import PixelRows, unpacked
from trainer.datasets.source import Piece
from trainer.errors import FullDisk, MachineError, is_full
from trainer.process.parent import REQUESTS_TO_LEAVE, end_with_starter, ignore_requests_to_leave

CHUNK = 64  # images per task: 10 MB at 224 pixels
AHEAD = 2  # chunks that each process prefetches
# What the fork server imports once for all processes.
PRELOADED = ["trainer.config", __name__]
HEAD = 64  # bytes before the content; the first is FREE or LENT
FREE, LENT = 0, 1
LONGEST_TMPDIR = 60  # bytes: macOS limits a socket's path to 103, of which multiprocessing needs 33
KILLED = (
    "a process that decodes images was killed; the usual reason is too little memory. Lower --workers, and start again "
    "to resume."
)
FULL = (
    "no room left in /dev/shm, which worker processes use to pass images; enlarge it (docker run --shm-size 1g, or "
    "mount -o remount,size=1g /dev/shm), or give a smaller --batch-size, fewer --workers or --worker-kind threads."
)


class Task(NamedTuple):
    """A chunk of a batch to decode."""

    pieces: tuple[Piece, ...]  # where the images' bytes are
    crops: Crops
    side: int  # in pixels, of the decoded images


class Decoded:
    """A decoded chunk.

    pixels: (n, S, S, 3) uint8; flips: (n,) bool, images still to be mirrored; bad: unreadable rows, and why.
    """

    def __init__(self, pixels: Tensor, flips: Tensor, bad: dict[int, str]) -> None:
        self.pixels, self.flips, self.bad = pixels, flips, bad

    def pin_memory(self) -> Decoded:
        """A copy in pinned memory.  Called by a thread of DataLoader, which then drops this object."""
        return Decoded(self.pixels.pin_memory(), self.flips.pin_memory(), self.bad)


class SharedDecoded(Decoded):
    """A chunk in memory shared with the worker that decoded it; its tensors are valid while this object exists."""

    def __init__(self, piece: Tensor, count: int, side: int, bad: dict[int, str]) -> None:
        sizes = [HEAD, count * side * side * 3, count]
        _, pixels, flips = piece[: sum(sizes)].split(sizes)
        super().__init__(pixels.view(count, side, side, 3), flips.view(torch.bool), bad)
        self._shared = piece, count, side, bad

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self._shared


def _rebuild(*shared: Any) -> SharedDecoded:
    here = SharedDecoded(*shared)
    weakref.finalize(here, release, shared[0]).atexit = False
    return here


class Processes:
    """A pool of `count` decoding processes, started with the first task."""

    def __init__(self, count: int, pinned: bool) -> None:
        self._count, self._pinned = count, pinned
        self._loader: DataLoader[Decoded] | None = None
        self._tasks = _Tasks()
        self._is_busy = False

    def decode(self, tasks: Iterable[Task]) -> Generator[Decoded]:
        """Decode the tasks in order.  tasks: consumed ahead of the results.

        Raises MachineError if a process dies or /dev/shm is full.
        """
        if self._is_busy:  # with another epoch that is not finished
            others = Processes(self._count, self._pinned)
            with closing(others.decode(tasks)) as decoded:
                yield from decoded
            return
        self._tasks.now, self._is_busy = iter(tasks), True
        try:
            yield from self._started()
        except (RuntimeError, OSError, EOFError) as error:
            if problem := _problem(error):
                raise problem from error
            raise
        finally:
            self._is_busy, self._tasks.now = False, iter(())

    def _started(self) -> Iterator[Decoded]:
        with warnings.catch_warnings():
            # It warns about more processes than cores, which trainer.tune tries and a user may choose.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            if self._loader is None:
                self._loader = self._new_loader()
            return iter(self._loader)

    def _new_loader(self) -> DataLoader[Decoded]:
        return DataLoader(
            _Decoder(),
            batch_size=None,
            sampler=self._tasks,
            num_workers=self._count,
            collate_fn=_unchanged,
            pin_memory=self._pinned,
            multiprocessing_context=_fork_server(),
            worker_init_fn=_end_with_the_training,
            prefetch_factor=AHEAD,
            persistent_workers=True,
            generator=torch.Generator(),  # otherwise it draws from the global one, whose state checkpoints restore
        )


def _problem(error: Exception) -> MachineError | None:
    """The error as one the user can act on; None for any other error."""
    text = str(error)
    if (isinstance(error, OSError) and is_full(error)) or "allocate shared memory" in text or "Bus error" in text:
        return FullDisk(FULL)
    # If a process is killed while it passes images, its socket is broken or gone.
    if isinstance(error, (ConnectionError, EOFError, FileNotFoundError)) or "exited unexpectedly" in text:
        return MachineError(KILLED)
    return None


class _Tasks:
    """DataLoader's sampler: the tasks of the current epoch."""

    def __init__(self) -> None:
        self.now: Iterator[Task] = iter(())

    def __iter__(self) -> Iterator[Task]:
        return self.now


class _Decoder(Dataset[Decoded]):
    """DataLoader's data set, which decodes a task in a worker process."""

    def __init__(self) -> None:
        self._memory = SharedMemory()

    def __getitem__(self, task: Task) -> Decoded:
        count, side = len(task.pieces), task.side
        decoded = SharedDecoded(self._memory.lend(count * (side * side * 3 + 1)), count, side, {})
        rows = PixelRows(decoded.pixels, decoded.flips.zero_())
        for row, (piece, view) in enumerate(zip(task.pieces, task.crops.views(), strict=True)):
            try:
                rows.put(row, piece.read(), view)
            except UnreadableError as error:
                decoded.bad[row] = str(error)
        return decoded


def _unchanged(decoded: Any) -> Any:
    return decoded


class DecodingProcess(ForkServerProcess):
    """A worker process that decodes images."""


class _Context(ForkServerContext):
    Process = DecodingProcess


def _fork_server() -> ForkServerContext:
    _keep_sockets_short()
    context = _Context()
    context.set_forkserver_preload(PRELOADED)
    # Slurm and terminals send stop signals to all processes of a training, but it needs its workers until it has
    # saved.  A child inherits the blocked signals.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS_TO_LEAVE)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    util.Finalize(None, _kill_decoders, exitpriority=1)
    return context


def _keep_sockets_short() -> None:
    """Make multiprocessing put its sockets in /tmp if TMPDIR is too long for a socket's path."""
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) > LONGEST_TMPDIR:
        tempfile.tempdir = "/tmp"  # noqa: S108  # multiprocessing creates a folder in it with mode 0700
        try:
            util.get_temp_dir()  # creates the folder, and remembers it here and in the processes
        finally:
            tempfile.tempdir = usual


def _kill_decoders() -> None:
    """Kill the workers at exit: multiprocessing would send SIGTERM, which they ignore, and wait."""
    for process in multiprocessing.active_children():
        if isinstance(process, DecodingProcess):
            process.kill()


def _end_with_the_training(_worker: int) -> None:
    """Make this worker exit when the training does, however that ends, and not before."""
    ignore_requests_to_leave()  # DataLoader has just installed a handler for SIGTERM
    # DataLoader's own check watches the parent process; that is the fork server, which lives as long as its children.
    training = multiprocessing.parent_process()
    assert training is not None
    end_with_starter(training.sentinel)


def gathered(parts: Sequence[Decoded], normalise: Normaliser, device: torch.device) -> tuple[Tensor, dict[int, str]]:
    """Join the parts of a batch: (B, 3, S, S) float32 on the device, and the unreadable rows with the reasons.

    Unreadable images become copies of a readable one rather than black, which would distort batch norm.
    """
    good = next((part for part in parts if len(part.bad) < len(part.flips)), None)
    bad: dict[int, str] = {}
    start = 0
    for part in parts:
        for row, why in part.bad.items():
            bad[start + row] = why
            part.pixels[row] = 0 if good is None else good.pixels[_first_readable(good)]
            part.flips[row] = False
        start += len(part.flips)
    images = [unpacked(part.pixels, part.flips, normalise, device) for part in parts]
    return images[0] if len(images) == 1 else torch.cat(images), bad


def _first_readable(part: Decoded) -> int:
    return next(row for row in range(len(part.flips)) if row not in part.bad)


class SharedMemory:
    """A worker's buffers for passing images to the training, reused once the training has released them.

    New shared memory for each chunk of images took a fifth of all processor time: tests/bench/RESULTS.md.
    """

    def __init__(self) -> None:
        self._pieces: list[Tensor] = []

    def lend(self, count: int) -> Tensor:
        """(HEAD + at least `count`,) uint8, uninitialised after HEAD, until any process calls release()."""
        piece = next((piece for piece in self._pieces if _is_free(piece) and len(piece) >= HEAD + count), None)
        if piece is None:
            # Drop free buffers that are too small, as images have grown.
            self._pieces = [piece for piece in self._pieces if not _is_free(piece)]
            piece = _shared_bytes(HEAD + count)
            self._pieces.append(piece)
        piece[0] = LENT
        return piece


def release(piece: Tensor) -> None:
    """Allow the process that owns the buffer to write to it again."""
    piece[0] = FREE


def _is_free(piece: Tensor) -> bool:
    return int(piece[0]) == FREE


def _shared_bytes(count: int) -> Tensor:
    """(count,) uint8, uninitialised, in shared memory, which torch passes between processes without a copy."""
    storage = torch.UntypedStorage._new_shared(count)  # as torch's own collate function does
    return torch.empty(0, dtype=torch.uint8).set_(storage)
