"""Images decoded by processes, for a training whose interpreter has a GPU to keep busy: torch's DataLoader.

Threads share one interpreter lock with what launches the GPU's kernels: sixteen of them made a step of ResNet-18 nine
times as long on an H100, and decoded less than as many processes (tests/bench/RESULTS.md).

Processes are forked from a server that has neither CUDA nor threads, not from the training, and end with it.
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

CHUNK = 64  # images that a process hands over at a time: 10 MB at 224 pixels
AHEAD = 2  # chunks a process may be ahead
# What the server imports, once for all processes: this, and what `python -m trainer` imports before it trains.
PRELOADED = ["trainer.config", __name__]
HEAD = 64  # bytes before the content; the first says whether it is still read
FREE, LENT = 0, 1
LONGEST_TMPDIR = 60  # bytes: the path of a socket may have 103 on macOS, of which multiprocessing needs 33
KILLED = (
    "a process that decodes images was killed; the usual reason is too little memory. Lower --workers, and start again "
    "to resume."
)
FULL = (
    "no room left in /dev/shm, through which processes hand over images; enlarge it (docker run --shm-size 1g, or "
    "mount -o remount,size=1g /dev/shm), or give a smaller --batch-size, fewer --workers or --worker-kind threads."
)


class Task(NamedTuple):
    """Some images of a batch, to be decoded to `side` pixels.  pieces: where their bytes are."""

    pieces: tuple[Piece, ...]
    crops: Crops
    side: int


class Decoded:
    """pixels: (n, S, S, 3) uint8; flips: (n,) bool, to be mirrored; bad: rows that are not filled, and why."""

    def __init__(self, pixels: Tensor, flips: Tensor, bad: dict[int, str]) -> None:
        self.pixels, self.flips, self.bad = pixels, flips, bad

    def pin_memory(self) -> Decoded:
        """A copy that a GPU fetches by itself.  A thread of DataLoader's calls this, and then drops this object."""
        return Decoded(self.pixels.pin_memory(), self.flips.pin_memory(), self.bad)


class SharedDecoded(Decoded):
    """What a process decoded, in memory it shares with the training: its tensors may be used as long as it lives."""

    def __init__(self, piece: Tensor, count: int, side: int, bad: dict[int, str]) -> None:
        sizes = [HEAD, count * side * side * 3, count]
        _, pixels, flips = piece[: sum(sizes)].split(sizes)
        super().__init__(pixels.view(count, side, side, 3), flips.view(torch.bool), bad)
        self._shared = piece, count, side, bad

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, self._shared


def _arrived(*shared: Any) -> SharedDecoded:
    here = SharedDecoded(*shared)
    weakref.finalize(here, release, shared[0]).atexit = False
    return here


class Processes:
    """`count` processes, started with the first task."""

    def __init__(self, count: int, pinned: bool) -> None:
        self._count, self._pinned = count, pinned
        self._loader: DataLoader[Decoded] | None = None
        self._tasks = _Tasks()
        self._is_busy = False

    def decode(self, tasks: Iterable[Task]) -> Generator[Decoded]:
        """Decodes what each task asks for, in order.  tasks: read ahead.

        Raises MachineError if a process dies or /dev/shm is full.
        """
        if self._is_busy:  # in the middle of another epoch
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
            # That there are more of them than cores, which trainer.tune measures and a user may choose.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            if self._loader is None:
                self._loader = self._made()
            return iter(self._loader)

    def _made(self) -> DataLoader[Decoded]:
        return DataLoader(
            _Decoder(),
            batch_size=None,
            sampler=self._tasks,
            num_workers=self._count,
            collate_fn=_as_it_is,
            pin_memory=self._pinned,
            multiprocessing_context=_fork_server(),
            worker_init_fn=_end_with_the_training,
            prefetch_factor=AHEAD,
            persistent_workers=True,
            generator=torch.Generator(),  # or it would draw from the one that the training resumes with
        )


def _problem(error: Exception) -> MachineError | None:
    """What the user can act on; None where it is another fault."""
    text = str(error)
    if (isinstance(error, OSError) and is_full(error)) or "allocate shared memory" in text or "Bus error" in text:
        return FullDisk(FULL)
    # Killed while it hands over its images, its socket is cut or gone.
    if isinstance(error, (ConnectionError, EOFError, FileNotFoundError)) or "exited unexpectedly" in text:
        return MachineError(KILLED)
    return None


class _Tasks:
    """The tasks of the epoch that is read now."""

    def __init__(self) -> None:
        self.now: Iterator[Task] = iter(())

    def __iter__(self) -> Iterator[Task]:
        return self.now


class _Decoder(Dataset[Decoded]):
    """What a process does."""

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


def _as_it_is(decoded: Any) -> Any:
    return decoded


class DecodingProcess(ForkServerProcess):
    """A process that decodes."""


class _Context(ForkServerContext):
    Process = DecodingProcess


def _fork_server() -> ForkServerContext:
    _keep_sockets_short()
    context = _Context()
    context.set_forkserver_preload(PRELOADED)
    # Slurm and terminals send the signals that ask a training to save and leave to all of its processes.  It needs its
    # images until it has saved.  A program starts with the signals blocked that are blocked where it is started.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS_TO_LEAVE)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    util.Finalize(None, _kill_decoders, exitpriority=1)
    return context


def _keep_sockets_short() -> None:
    """Has multiprocessing put its sockets below /tmp where TMPDIR is too long for the path of one."""
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) > LONGEST_TMPDIR:
        tempfile.tempdir = "/tmp"  # nosec B108  # multiprocessing makes a folder of its own in it, with mode 0700
        try:
            util.get_temp_dir()  # makes the folder, and remembers it, here and in the processes
        finally:
            tempfile.tempdir = usual


def _kill_decoders() -> None:
    """At this program's end, where multiprocessing would send them SIGTERM and wait: they do not listen to that."""
    for process in multiprocessing.active_children():
        if isinstance(process, DecodingProcess):
            process.kill()


def _end_with_the_training(_worker: int) -> None:
    """Has this process end at once with the training, however that ends, and not before."""
    ignore_requests_to_leave()  # DataLoader has just begun to listen to SIGTERM
    # DataLoader looks whether the process that forked this one is there, which is the server; and that is there for as
    # long as any of its processes.
    training = multiprocessing.parent_process()
    assert training is not None
    end_with_starter(training.sentinel)


def gathered(parts: Sequence[Decoded], normalise: Normaliser, device: torch.device) -> tuple[Tensor, dict[int, str]]:
    """(B, 3, S, S) float32 on the device, of at least one part; and which rows could not be read, and why.

    Unreadable images are copies of a readable one, rather than black, for batch norm's sake.
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
    """Memory in which a process passes images to the training, and decodes again once they are used.

    Fresh pages of shared memory for each chunk of images took a fifth of all processor time: tests/bench/RESULTS.md.
    """

    def __init__(self) -> None:
        self._pieces: list[Tensor] = []

    def lend(self, count: int) -> Tensor:
        """(HEAD + at least `count`,) uint8 of any content behind its head, until release() is called in any process."""
        piece = next((piece for piece in self._pieces if _is_free(piece) and len(piece) >= HEAD + count), None)
        if piece is None:
            # What is free and too small has had its time: images have grown.
            self._pieces = [piece for piece in self._pieces if not _is_free(piece)]
            piece = _shared_bytes(HEAD + count)
            self._pieces.append(piece)
        piece[0] = LENT
        return piece


def release(piece: Tensor) -> None:
    """Allow the process that lent it to write to it again."""
    piece[0] = FREE


def _is_free(piece: Tensor) -> bool:
    return int(piece[0]) == FREE


def _shared_bytes(count: int) -> Tensor:
    """(count,) uint8 of any content, in memory that is handed over as it is: any other would be copied into such."""
    storage = torch.UntypedStorage._new_shared(count)  # as torch's own collate function has it
    return torch.empty(0, dtype=torch.uint8).set_(storage)
