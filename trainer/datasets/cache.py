"""Results kept on disk between starts.  Safe when several processes read and write at once: a file is
either whole or absent.  What is kept must be rebuildable: a file that cannot be read counts as absent.
A file holds no code: trainer/state/plain.py.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from trainer.datasets.tree import Files, Tree, list_files
from trainer.errors import one_line
from trainer.files import write_atomically
from trainer.state import plain

Content = dict[str, Any]

VERSION = 7  # to be raised with any change to what is kept, or to how it is made
SUFFIX = ".safetensors"

log = logging.getLogger(__name__)


def cache_path(cache_dir: Path, kind: str, source: Path) -> Path:
    """The file that holds what was made of the folder `source`; `kind` says what and how."""
    digest = hashlib.sha256(os.fsencode(source.resolve())).hexdigest()
    return cache_dir.expanduser() / f"{kind}-{digest[:12]}{SUFFIX}"


def recall(path: Path, is_current: Callable[[Content], bool], build: Callable[[], Content]) -> Content:
    """Reads `path` if it is current; else calls `build` and keeps its result there for the next start.

    A content holds tensors, numbers, strings, lists and dicts.  Tensors read back are mapped from the
    file, so that processes of one machine share the memory.
    """
    found = _read(path)
    if found is not None and is_current(found):
        return found
    built = build()
    try:
        _write(path, built)
    except OSError as error:
        log.warning("could not keep %s (%s): the next start is slow again; --cache-dir moves it", path, error)
    return built


def _read(path: Path) -> Content | None:
    try:
        if not path.is_file():  # raises where the folder may not be entered
            return None
    except OSError:
        return None
    try:
        kept = plain.read_mapped(path)
        if kept["version"] != VERSION:
            return None
        content: Content = kept["content"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s is damaged and will be made again (%s)", path, one_line(error))
        return None
    return content


def _write(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, plain.pieces({"version": VERSION, "content": content}))


# ---- The files of a folder: listing a million takes long


class PackedNames(Sequence[str]):
    """Names as bytes behind each other, mapped from the cache: a million strings of Python's would take 100 MB a rank.

    text: (bytes,) uint8; ends: (names,) int64, where each one ends.
    """

    def __init__(self, text: Tensor, ends: Tensor) -> None:
        self._text, self._ends = text.numpy(), ends.numpy()

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        start = int(self._ends[number - 1]) if number else 0
        return os.fsdecode(self._text[start : int(self._ends[number])].tobytes())


def indexed_files(cache_dir: Path, tree: Tree) -> tuple[Files, Files]:
    """The images to train and to evaluate on.  Raises DataError naming a class without images."""
    return _indexed(cache_dir, tree.train, tree.classes), _indexed(cache_dir, tree.evaluation, tree.classes)


def _indexed(cache_dir: Path, root: Path, classes: tuple[str, ...]) -> Files:
    content = recall(
        cache_path(cache_dir, "index", root),
        is_current=lambda found: found.get("classes") == list(classes) and _unchanged(root, found["folders"]),
        build=lambda: _packed_files(list_files(root, classes), classes),
    )
    names = PackedNames(content["names"], content["ends"])
    return Files(root, names, content["labels"].numpy(), content["folders"])


def _packed_files(files: Files, classes: tuple[str, ...]) -> Content:
    names = [os.fsencode(name) for name in files.names]
    ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
    return {
        "classes": list(classes),
        "names": torch.frombuffer(bytearray(b"".join(names)), dtype=torch.uint8),
        "ends": torch.from_numpy(ends),
        "labels": torch.tensor(files.labels),
        "folders": files.folders,
    }


def _unchanged(root: Path, folders: dict[str, int]) -> bool:
    """Whether no file came or went: that changes the modification time of its folder."""
    try:
        return all((root / name).stat().st_mtime_ns == time for name, time in folders.items())
    except FileNotFoundError:
        return False
