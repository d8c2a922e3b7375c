"""Lists of files kept on disk, since listing a million takes long.  The folders' times say whether they still hold."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np
import torch
from torch import Tensor

from trainer.datasets.cache import Content, cache_path, recall
from trainer.datasets.tree import Files, Tree, list_files


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
        build=lambda: _packed(list_files(root, classes), classes),
    )
    names = PackedNames(content["names"], content["ends"])
    return Files(root, names, content["labels"].numpy(), content["folders"])


def _packed(files: Files, classes: tuple[str, ...]) -> Content:
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
