"""Checkpoint files: written whole or not at all, checked by a digest, the newest good one found again.

Each `NAME.pt` has a `NAME.pt.sha256` that `sha256sum -c` reads too.  The data is on disk before its
digest appears, so a file without one was never finished.  What is inside is snapshot.py's business.
"""

import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from trainer.errors import CheckpointError, not_written
from trainer.files import write_atomically

NAME = "epoch-{epoch:04d}-step-{step:06d}.pt"
BEST = "best.pt"
_PATTERN = re.compile(r"epoch-(\d+)-step-(\d+)\.pt")


class Checkpoints:
    """A folder of checkpoints.  Saving goes on in the background; `wait` raises what went wrong there."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self._keep = folder, keep
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, state: dict[str, Any], epoch: int, step: int, *, is_best: bool) -> Path:
        """Starts writing `state`, whose tensors nobody may change any more.  Raises what the last save met."""
        self.wait()
        path = self.path(epoch, step)
        self._pending = self._writer.submit(self._write, path, state, is_best)
        return path

    def path(self, epoch: int, step: int) -> Path:
        """Where the checkpoint after `epoch` whole epochs and `step` updates in all is saved."""
        return self.folder / NAME.format(epoch=epoch, step=step)

    def wait(self) -> None:
        """Returns once everything saved is on disk.  Raises MachineError if it could not be."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Waits for the writer and ends it, raising nothing: for the way out after another error."""
        self._writer.shutdown(wait=True)

    def newest(self, warn: Callable[[str], None]) -> bytes | None:
        """The newest whole checkpoint, or None if there is none at all.

        Damaged ones are set aside with a warning, or they would outlive the good ones that follow.
        Raises CheckpointError when every one is damaged.
        """
        candidates = _candidates(self.folder)
        damaged = []
        for path in candidates:
            try:
                data = read(path)
            except CheckpointError as error:
                warn(f"{error} Trying the one before.")
                damaged.append(path)
            else:
                _set_aside(damaged, ".damaged")
                return data
        if candidates:
            raise CheckpointError(
                f"all {len(candidates)} checkpoints in {self.folder} are damaged; "
                "restore one, or start afresh with --no-resume or another --checkpoint-dir."
            )
        return None

    def start_afresh(self) -> None:
        """Sets the checkpoints of an earlier run in this folder aside, as NAME.pt.earlier."""
        _set_aside(_candidates(self.folder), ".earlier")

    def _write(self, path: Path, state: dict[str, Any], is_best: bool) -> None:
        write(path, _serialized(state))
        if is_best:
            _duplicate(path, self.folder / BEST)
        _tidy(self.folder, self._keep)


def write(path: Path, data: bytes) -> None:
    """Writes `data` and its digest so that a crash at any moment leaves the old file or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
        write_atomically(_digest_file(path), f"{hashlib.sha256(data).hexdigest()}  {path.name}\n".encode())
    except OSError as error:
        raise not_written(error, _why_not_written(path, len(data), error)) from error


def read(path: Path) -> bytes:
    """The bytes of a checkpoint.  Raises CheckpointError if it is missing, unfinished or damaged."""
    try:
        data, digest = path.read_bytes(), _digest_file(path).read_text().split()
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read ({error.strerror}).") from error
    if digest[:1] != [hashlib.sha256(data).hexdigest()]:
        raise CheckpointError(f"checkpoint {path} is damaged: its content does not match its digest.")
    return data


def load(data: bytes) -> dict[str, Any]:
    """What `data` holds, on the CPU.  Only tensors and plain values are accepted, so a file cannot run code."""
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state


def save_weights(path: Path, weights: dict[str, Any]) -> None:
    """Writes a model's weights alone, for use elsewhere."""
    write(path, _serialized(weights))


def _serialized(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _candidates(folder: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    found = [(match, path) for path in folder.glob("*.pt") if (match := _PATTERN.fullmatch(path.name))]
    found = [(match, path) for match, path in found if _digest_file(path).exists()]
    found.sort(key=lambda pair: (int(pair[0][1]), int(pair[0][2])), reverse=True)
    return [path for _, path in found]


def _set_aside(paths: list[Path], suffix: str) -> None:
    """Renames checkpoints so that nothing takes them for this run's; the data stays the user's to delete."""
    for path in paths:
        _digest_file(path).unlink(missing_ok=True)
        path.replace(path.with_name(path.name + suffix))


def _digest_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _duplicate(path: Path, copy: Path) -> None:
    """Makes `copy` a second name of `path`, or a copy where the file system has no hard links."""
    temporary = copy.with_name(f".{copy.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:
        shutil.copyfile(path, temporary)
    _digest_file(copy).unlink(missing_ok=True)  # for a moment no digest, rather than one of other data
    temporary.replace(copy)
    write_atomically(_digest_file(copy), _digest_file(path).read_text().replace(path.name, copy.name))


def _tidy(folder: Path, keep: int) -> None:
    """Removes all but the newest `keep`, and what a killed process left half written."""
    for old in _candidates(folder)[keep:]:
        _digest_file(old).unlink(missing_ok=True)  # digest first: never a digest without its data
        old.unlink(missing_ok=True)
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def _why_not_written(path: Path, size: int, error: OSError) -> str:
    free = shutil.disk_usage(path.parent).free / 2**20 if path.parent.exists() else 0
    return (
        f"cannot write checkpoint {path} of {size / 2**20:.0f} MiB ({error.strerror}; {free:.0f} MiB free); "
        "earlier checkpoints are untouched. Free some space or choose another --checkpoint-dir, then start again."
    )
