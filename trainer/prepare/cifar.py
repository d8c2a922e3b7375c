"""CIFAR-10 and CIFAR-100 as their page publishes them: pickled arrays, which become PNGs, without any loss."""

import io
import pickle  # nosec B403  # what it reads is limited to arrays, and to classes of this file
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainer.datasets.archive import DAMAGED, contents, opened
from trainer.datasets.encoded import Pixels
from trainer.datasets.tree import TEST
from trainer.errors import DataError, one_line
from trainer.prepare.listing import Found
from trainer.prepare.tars import tar_of_folders

ARCHIVES = ("cifar-10-python.tar.gz", "cifar-100-python.tar.gz")
SIDE = 32
DAMAGE = (
    pickle.UnpicklingError, EOFError, KeyError, ValueError, IndexError, TypeError, AttributeError, MemoryError,
    OverflowError,
)  # fmt: skip

_NUMBER = re.compile(r"[biuf][1248]")  # NumPy's names of numbers, without an order of bytes
_ARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")  # older NumPys, and newer ones
# The files of each half, as their names begin; and the key of the labels.
_HALVES = {"data_batch": "train", "test_batch": "val", "train": "train", "test": "val"}


def cifar(archive: Path, room: Path) -> Found:
    """The images of the archive.  They are kept in a tar in the folder `room`.  Raises DataError."""
    status = archive.stat()
    target = room / f"cifar-{status.st_size}-{status.st_mtime_ns}.tar"
    if not target.exists():
        part = target.with_suffix(".part")
        try:
            with (
                opened(archive) as packed,
                part.open("wb") as file,
                tarfile.open(fileobj=file, mode="w") as plain,
            ):
                _convert(packed, plain)
        except (*DAMAGED, *DAMAGE) as error:
            raise DataError(
                f"{one_line(archive, 300)} is damaged, or no archive of CIFAR's ({one_line(error)}); get it again."
            ) from error
        part.replace(target)
    found = tar_of_folders(target, room)
    return Found("cifar", archive.name, found.classes, found.train, found.val, TEST)


def _convert(packed: tarfile.TarFile, plain: tarfile.TarFile) -> None:
    """Writes each image to `plain` as HALF/CLASS/NUMBER.png, numbered from 0 in each half."""
    files = {Path(path).name: read_arrays(data) for path, data in contents(packed, _is_data)}
    classes = _classes(files.pop("batches.meta" if "batches.meta" in files else "meta"))
    files.pop("meta", None)  # an archive may have both
    counts = {"train": 0, "val": 0}
    for file in sorted(files):
        half = next(half for start, half in _HALVES.items() if file.startswith(start))
        for pixels, label in _images(files[file]):
            name = f"{half}/{classes[label]}/{counts[half]:05d}.png"
            counts[half] += 1
            _add_png(plain, name, pixels)


def _classes(meta: Mapping[str, Any]) -> list[str]:
    return [name.decode() for name in meta.get("label_names") or meta["fine_label_names"]]


def _add_png(tar: tarfile.TarFile, name: str, pixels: Pixels) -> None:
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    info = tarfile.TarInfo(name)
    info.size = data.tell()
    data.seek(0)
    tar.addfile(info, data)


def _is_data(path: str) -> bool:
    name = Path(path).name
    return name in ("batches.meta", "meta", "test_batch", "train", "test") or name.startswith("data_batch_")


def _images(content: dict[str, Any]) -> Iterator[tuple[Pixels, int]]:
    """Each image, (32, 32, 3) uint8, with its label."""
    rows = content["data"].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    labels = content.get("labels") or content["fine_labels"]
    for pixels, label in zip(rows, labels, strict=True):
        yield np.ascontiguousarray(pixels, np.uint8), int(label)


def read_arrays(data: bytes) -> dict[str, Any]:
    """A pickled dictionary of arrays of numbers, numbers and bytes.  Raises one of DAMAGE; nothing in it can run.

    The arrays cannot be written to.
    """
    content = _Arrays(io.BytesIO(data), encoding="bytes").load()
    if not isinstance(content, dict):
        raise ValueError("no dictionary")
    return {_text(key): value.array() if isinstance(value, _Array) else value for key, value in content.items()}


def _text(value: object) -> str:
    """Raises ValueError for what is no text."""
    if not isinstance(value, (bytes, str)):
        raise ValueError("a name that is no text")
    return value.decode("latin1") if isinstance(value, bytes) else value


class _Type:
    """Stands for numpy.dtype."""

    def __init__(self, name: object, *_: object) -> None:
        self.name, self.order = _text(name), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])

    def dtype(self) -> "np.dtype[Any]":
        if not _NUMBER.fullmatch(self.name) or self.order not in ("|", "=", "<", ">"):
            raise ValueError("an array of something else than numbers")
        return np.dtype(self.order + self.name)


class _Array:
    """Stands for numpy.ndarray, of which it makes one only when all is read, and only of numbers.

    NumPy itself believes what a pickle says of a type: one that calls eight bytes of the file an object has it follow
    them as an address.
    """

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def array(self) -> "np.ndarray[Any, Any]":
        _, shape, of, is_fortran, numbers = self.state
        if not isinstance(of, _Type) or not isinstance(numbers, bytes):
            raise ValueError("an array of something else than numbers")
        return np.frombuffer(numbers, of.dtype()).reshape(shape, order="F" if is_fortran else "C")


class _Arrays(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in _ARRAY and name == "_reconstruct":
            return _Array
        if module == "numpy" and name in ("ndarray", "dtype"):
            return _Type if name == "dtype" else _Array
        raise pickle.UnpicklingError(f"{module}.{name} is no part of an array")
