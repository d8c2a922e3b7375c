"""Results cached on disk between runs.

Safe for concurrent readers and writers: a file is either complete or absent.  An unreadable file counts as absent, so
only what can be rebuilt belongs here.  The format, trainer/state/plain.py, cannot contain code.
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

VERSION = 7  # raise it with any change to what is cached, or to how it is computed
SUFFIX = ".safetensors"

log = logging.getLogger(__name__)


def cache_path(cache_dir: Path, kind: str, source: Path) -> Path:
    """The cache file for a result computed from the folder `source`.  kind: what was computed, and how."""
    digest = hashlib.sha256(os.fsencode(source.resolve())).hexdigest()
    return cache_dir.expanduser() / f"{kind}-{digest[:12]}{SUFFIX}"


def recall(path: Path, is_current: Callable[[Content], bool], build: Callable[[], Content]) -> Content:
    """Read `path` if it is current; else call `build` and cache its result there.

    The content consists of tensors, numbers, strings, lists and dicts.  Tensors read back are mapped from the file, so
    that processes of one machine share the memory.
    """
    found = _read(path)
    if found is not None and is_current(found):
        return found
    built = build()
    try:
        _write(path, built)
    except OSError as error:
        log.warning("could not write %s (%s), so the next start is slow again; try another --cache-dir", path, error)
    return built


def _read(path: Path) -> Content | None:
    try:
        if not path.is_file():  # raises if the folder cannot be entered
            return None
    except OSError:
        return None
    try:
        kept = plain.read_mapped(path)
        if kept["version"] != VERSION:
            return None
        content: Content = kept["content"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s is damaged and will be rebuilt (%s)", path, one_line(error))
        return None
    return content


def _write(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, plain.pieces({"version": VERSION, "content": content}))


# ---- The files of a folder, cached because listing a million takes long


class PackedNames(Sequence[str]):
    """File names as one concatenated byte array, mapped from the cache.

    A million Python strings would take 100 MB per rank.  text: (bytes,) uint8; ends: (names,) int64, where each ends.
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
    """The training and the evaluation images.  Raises DataError naming a class without images."""
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
    """Whether no file was added or removed, which would change the modification time of its folder."""
    try:
        return all((root / name).stat().st_mtime_ns == time for name, time in folders.items())
    except FileNotFoundError:
        return False
