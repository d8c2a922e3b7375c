"""Checkpoint files: write them atomically with a digest, and find the newest valid one.

Each `NAME.pt` has a `NAME.pt.sha256` that `sha256sum -c` accepts.  The data is on disk before its digest is written, so
a file without a digest is incomplete.  The content is defined in snapshot.py.
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
SAFE_TORCH = (2, 10)  # the first version whose weights_only is safe: CVE-2026-24747
_PATTERN = re.compile(r"epoch-(\d+)-step-(\d+)\.pt")


class Checkpoints:
    """A folder of checkpoints, saved in the background; `wait` raises the errors of saving."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self._keep = folder, keep
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, state: dict[str, Any], epoch: int, step: int, *, is_best: bool) -> Path:
        """Start writing `state`, whose tensors must not change afterwards.  Raises the error of the previous save."""
        self.wait()
        path = self.path(epoch, step)
        self._pending = self._writer.submit(self._write, path, state, is_best)
        return path

    def path(self, epoch: int, step: int) -> Path:
        """The path of the checkpoint after `epoch` complete epochs and `step` updates in total."""
        return self.folder / NAME.format(epoch=epoch, step=step)

    def wait(self) -> None:
        """Wait until everything saved is on disk.  Raises MachineError if it could not be written."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Wait for the writer thread and end it.  Raises nothing, so as not to hide another error."""
        self._writer.shutdown(wait=True)

    def newest(self, warn: Callable[[str], None]) -> bytes | None:
        """The newest valid checkpoint, or None if there are no checkpoints.

        Newer ones that are damaged are renamed, with a warning, so that they do not count as the newest later.
        Raises CheckpointError if all are damaged.
        """
        candidates = _candidates(self.folder)
        damaged = []
        for path in candidates:
            try:
                data = read(path)
                _check_content(path, data)
            except CheckpointError as error:
                warn(f"{error} Trying the previous one.")
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
        """Restore best.pt from the checkpoint `name` if it is missing or outdated, as after a kill between the two.

        Return False if neither is valid.
        """
        path, best = self.folder / name, self.folder / BEST
        # The checkpoint may have been removed since, as only the newest are kept.
        recorded = _digest(path) if is_file(_digest_file(path)) else None
        if _is_whole(best) and recorded in (None, _digest(best)):
            return True
        if not _is_whole(path):
            return False
        _duplicate(path, best)
        return True

    def start_afresh(self) -> None:
        """Rename the checkpoints of an earlier run in this folder to NAME.pt.earlier."""
        best = self.folder / BEST
        _set_aside([*_candidates(self.folder), *([best] if best.exists() else [])], ".earlier")

    def _write(self, path: Path, state: dict[str, Any], is_best: bool) -> None:
        write(path, plain.pieces(state))
        if is_best:
            _duplicate(path, self.folder / BEST)
        _tidy(self.folder, self._keep)


def write(path: Path, data: bytes | Sequence[bytes | memoryview]) -> None:
    """Write `data` and its digest so that a crash at any moment leaves either the old file or the new one.

    data: may be given in pieces, since joining those of a large model would double the memory.
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
    """Read a checkpoint's bytes.  Raises CheckpointError if it is missing, incomplete or damaged."""
    try:
        data, digest = path.read_bytes(), _digest(path)
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read ({error.strerror}).") from error
    if digest != hashlib.sha256(data).hexdigest().encode():
        raise CheckpointError(f"checkpoint {path} is damaged: its content does not match its digest.")
    return data


def is_name(name: object) -> bool:
    """Whether it is the file name of a checkpoint, and therefore not a path outside the folder."""
    return isinstance(name, str) and _PATTERN.fullmatch(name) is not None


def load(data: bytes) -> dict[str, Any]:
    """Parse a checkpoint, or the weights in a model.pt, to the CPU, without running any code in it.

    Raises CheckpointError for a pickle if this torch cannot read one safely, and any Exception for a damaged file.
    """
    if plain.is_plain(data):
        content: dict[str, Any] = plain.loads(data)
        return content
    if torch_version() < SAFE_TORCH:
        raise CheckpointError(
            f"it is a pickle, which torch {torch.__version__} cannot read safely (CVE-2026-24747); use torch 2.10 or "
            "newer, or give the model.safetensors beside it."
        )
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state


def content_of(path: Path, remedy: str) -> dict[str, Any]:
    """Read a checkpoint or a model.pt of any run, and check its digest if there is one beside it.

    Raises SettingsError, ending with `remedy`, for a file that is missing, damaged or of another kind.
    """
    try:
        content: Any = load(read(path) if _digest_file(path).exists() else path.read_bytes())
    except CheckpointError as error:
        raise SettingsError(f"{str(error).rstrip('.')}; {remedy}") from error
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; {remedy}") from error
    except Exception as error:  # torch's reader may raise anything for a damaged file
        raise SettingsError(f"{path} contains no weights that torch can read; {remedy}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise SettingsError(f"{path} contains no named weights; {remedy}")
    return content


def torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def are_finite(weights: dict[str, Any]) -> bool:
    """Whether all weights of a model are finite."""
    return all(bool(weight.isfinite().all()) for weight in weights.values() if isinstance(weight, torch.Tensor))


def _check_content(path: Path, data: bytes) -> None:
    """Raise CheckpointError for an intact file that is not a checkpoint."""
    try:
        state = load(data)
    except CheckpointError as error:
        raise CheckpointError(f"checkpoint {path}: {error}") from error
    except Exception as error:  # torch's reader may raise anything for a damaged file
        raise CheckpointError(f"checkpoint {path} contains nothing that torch can read safely.") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"checkpoint {path} contains a {type(state).__name__} instead of a training's state.")


def save_weights(path: Path, weights: dict[str, Any]) -> None:
    """Write only a model's weights: as model.pt for torch.load, and as model.safetensors for other programs."""
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    write(path, [buffer.getbuffer()])
    write(path.with_suffix(".safetensors"), plain.pieces(weights))


def _candidates(folder: Path) -> list[Path]:
    """Checkpoints that have a digest, newest first."""
    found = [(match, path) for path in folder.glob("*.pt") if (match := _PATTERN.fullmatch(path.name))]
    found = [(match, path) for match, path in found if _digest_file(path).exists()]
    found.sort(key=lambda pair: (int(pair[0][1]), int(pair[0][2])), reverse=True)
    return [path for _, path in found]


def _set_aside(paths: list[Path], suffix: str) -> None:
    """Rename checkpoints so that they no longer count as this run's; the user may delete them."""
    for path in paths:
        _digest_file(path).unlink(missing_ok=True)
        path.replace(path.with_name(path.name + suffix))


def _digest_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _digest(path: Path) -> bytes:
    """The digest stored beside `path`, which may be garbage."""
    return b"".join(_digest_file(path).read_bytes().split()[:1])


def _is_whole(path: Path) -> bool:
    try:
        read(path)
    except CheckpointError:
        return False
    return True


def _duplicate(path: Path, copy: Path) -> None:
    """Make `copy` a second name of `path`, or a copy where the file system has no hard links."""
    temporary = copy.with_name(f".{copy.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:
        with path.open("rb") as data, temporary.open("wb") as file:
            shutil.copyfileobj(data, file)
    _digest_file(copy).unlink(missing_ok=True)  # no digest for a moment, rather than a wrong one
    temporary.replace(copy)
    write_atomically(_digest_file(copy), f"{_digest(path).decode(errors='replace')}  {copy.name}\n")


def _tidy(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, and temporary files of a killed process."""
    for old in _candidates(folder)[keep:]:
        _digest_file(old).unlink(missing_ok=True)  # first, so that there is never a digest without its data
        old.unlink(missing_ok=True)
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def _why_not_written(path: Path, size: int, error: OSError) -> str:
    free = shutil.disk_usage(path.parent).free / 2**20 if path.parent.exists() else 0
    return (
        f"cannot write checkpoint {path} of {size / 2**20:.0f} MiB ({error.strerror}; {free:.0f} MiB free); "
        "earlier checkpoints are untouched. Free some space or choose another --checkpoint-dir, then start again."
    )
