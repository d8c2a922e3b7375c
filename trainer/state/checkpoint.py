"""Checkpoint files: written whole or not at all, checked by a digest, the newest good one found again.

Each `NAME.pt` has a `NAME.pt.sha256` that `sha256sum -c` reads too.  The data is on disk before its
digest appears, so a file without one was never finished.  What is inside is snapshot.py's business.
"""

import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from trainer.errors import CheckpointError, SettingsError, not_written
from trainer.files import is_file, write_atomically
from trainer.state import plain

NAME = "epoch-{epoch:04d}-step-{step:06d}.pt"
BEST = "best.pt"
SAFE_TORCH = (2, 10)  # the first whose weights_only keeps what it promises: CVE-2026-24747
_PATTERN = re.compile(r"epoch-(\d+)-step-(\d+)\.pt")


class Checkpoints:
    """A folder of checkpoints.  Saving goes on in the background; `wait` raises what went wrong there."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self._keep = folder, keep
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, state: dict[str, Any], epoch: int, step: int, *, is_best: bool) -> Path:
        """Starts writing `state`, whose tensors must not change any more.  Raises what the last save met."""
        self.wait()
        path = self.path(epoch, step)
        self._pending = self._writer.submit(self._write, path, state, is_best)
        return path

    def path(self, epoch: int, step: int) -> Path:
        """Where the checkpoint after `epoch` whole epochs and `step` updates in all is saved."""
        return self.folder / NAME.format(epoch=epoch, step=step)

    def wait(self) -> None:
        """Waits until everything saved is on disk.  Raises MachineError if it could not be written."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Waits for the writer and ends it.  Raises nothing, so that it does not hide another error."""
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
                _check_content(path, data)
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

    def repair_best(self, name: str) -> bool:
        """Makes best.pt the checkpoint `name` again if a kill came between the two; False where neither is whole."""
        path, best = self.folder / name, self.folder / BEST
        # The checkpoint itself may have been removed since, as not among the newest.
        recorded = _digest(path) if is_file(_digest_file(path)) else None
        if _is_whole(best) and recorded in (None, _digest(best)):
            return True
        if not _is_whole(path):
            return False
        _duplicate(path, best)
        return True

    def start_afresh(self) -> None:
        """Sets the checkpoints of an earlier run in this folder aside, as NAME.pt.earlier."""
        best = self.folder / BEST
        _set_aside([*_candidates(self.folder), *([best] if best.exists() else [])], ".earlier")

    def _write(self, path: Path, state: dict[str, Any], is_best: bool) -> None:
        write(path, plain.pieces(state))
        if is_best:
            _duplicate(path, self.folder / BEST)
        _tidy(self.folder, self._keep)


def write(path: Path, data: bytes | Sequence[bytes | memoryview]) -> None:
    """Writes `data`, or its pieces, and its digest so that a crash at any moment leaves the old file or the new one.

    Pieces of a large model, joined, would take its memory twice.
    """
    pieces = [data] if isinstance(data, bytes) else data
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, pieces)
        write_atomically(_digest_file(path), f"{digest.hexdigest()}  {path.name}\n")
    except OSError as error:
        raise not_written(error, _why_not_written(path, sum(map(len, pieces)), error)) from error


def read(path: Path) -> bytes:
    """The bytes of a checkpoint.  Raises CheckpointError if it is missing, unfinished or damaged."""
    try:
        data, digest = path.read_bytes(), _digest(path)
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read ({error.strerror}).") from error
    if digest != hashlib.sha256(data).hexdigest().encode():
        raise CheckpointError(f"checkpoint {path} is damaged: its content does not match its digest.")
    return data


def is_name(name: object) -> bool:
    """Whether it is a checkpoint's name, and so no path out of the folder."""
    return isinstance(name, str) and _PATTERN.fullmatch(name) is not None


def load(data: bytes) -> dict[str, Any]:
    """The checkpoint in `data`, or the weights of a model.pt, on the CPU.  A file cannot run code.

    Raises CheckpointError for what an earlier version pickled, where torch cannot read that safely; and for garbage
    whatever the reader of a file stumbles over.
    """
    if plain.is_plain(data):
        read_plainly: dict[str, Any] = plain.loads(data)
        return read_plainly
    if torch_version() < SAFE_TORCH:
        raise CheckpointError(
            f"a file is pickled, which torch {torch.__version__} cannot read safely (CVE-2026-24747); read it with "
            "torch 2.10 or newer, or give the model.safetensors beside it."
        )
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state


def content_of(path: Path, remedy: str) -> dict[str, Any]:
    """What a checkpoint or a model.pt of any run holds.  A digest is checked where one lies beside.

    Raises SettingsError, ending with `remedy`, for a file that is missing, damaged or something else.
    """
    try:
        content: Any = load(read(path) if _digest_file(path).exists() else path.read_bytes())
    except CheckpointError as error:
        raise SettingsError(f"{str(error).rstrip('.')}; {remedy}") from error
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; {remedy}") from error
    except Exception as error:  # torch's reader raises whatever a stray byte makes it stumble over
        raise SettingsError(f"{path} holds no weights that torch can read; {remedy}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise SettingsError(f"{path} holds no weights by name; {remedy}")
    return content


def torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def are_finite(weights: dict[str, Any]) -> bool:
    """Whether every number of a model's weights is one."""
    return all(bool(weight.isfinite().all()) for weight in weights.values() if isinstance(weight, torch.Tensor))


def _check_content(path: Path, data: bytes) -> None:
    """Raises CheckpointError for an undamaged file that no training has written."""
    try:
        state = load(data)
    except CheckpointError as error:
        raise CheckpointError(f"checkpoint {path}: {error}") from error
    except Exception as error:  # torch's reader raises whatever a stray byte makes it stumble over
        raise CheckpointError(f"checkpoint {path} holds nothing that torch can read safely.") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"checkpoint {path} holds a {type(state).__name__} instead of a training's state.")


def save_weights(path: Path, weights: dict[str, Any]) -> None:
    """Writes a model's weights alone, for use elsewhere: as model.pt for torch.load, and as model.safetensors."""
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    write(path, [buffer.getbuffer()])
    write(path.with_suffix(".safetensors"), plain.pieces(weights))


def _candidates(folder: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    found = [(match, path) for path in folder.glob("*.pt") if (match := _PATTERN.fullmatch(path.name))]
    found = [(match, path) for match, path in found if _digest_file(path).exists()]
    found.sort(key=lambda pair: (int(pair[0][1]), int(pair[0][2])), reverse=True)
    return [path for _, path in found]


def _set_aside(paths: list[Path], suffix: str) -> None:
    """Renames checkpoints so that they are not taken for this run's; the user may delete them."""
    for path in paths:
        _digest_file(path).unlink(missing_ok=True)
        path.replace(path.with_name(path.name + suffix))


def _digest_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _digest(path: Path) -> bytes:
    """The digest that was written beside `path`; anything may stand in that file."""
    return b"".join(_digest_file(path).read_bytes().split()[:1])


def _is_whole(path: Path) -> bool:
    try:
        read(path)
    except CheckpointError:
        return False
    return True


def _duplicate(path: Path, copy: Path) -> None:
    """Makes `copy` a second name of `path`, or a copy where the file system has no hard links."""
    temporary = copy.with_name(f".{copy.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:
        with path.open("rb") as data, temporary.open("wb") as file:
            shutil.copyfileobj(data, file)
    _digest_file(copy).unlink(missing_ok=True)  # for a moment no digest, rather than one of other data
    temporary.replace(copy)
    write_atomically(_digest_file(copy), f"{_digest(path).decode(errors='replace')}  {copy.name}\n")


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
