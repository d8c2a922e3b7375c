"""Lists of files kept on disk, since listing a million takes long.  The folders' times say whether they still hold."""

import os
from pathlib import Path

import torch

from trainer.datasets.cache import Content, cache_path, recall
from trainer.datasets.tree import Files, Tree, list_files

SEPARATOR = "\0"  # the one character no file name holds


def indexed_files(cache_dir: Path, tree: Tree) -> tuple[Files, Files]:
    """The images to train and to evaluate on.  Raises DataError naming a class without images."""
    return _indexed(cache_dir, tree.train, tree.classes), _indexed(cache_dir, tree.evaluation, tree.classes)


def _indexed(cache_dir: Path, root: Path, classes: tuple[str, ...]) -> Files:
    content = recall(
        cache_path(cache_dir, "index", root),
        is_current=lambda found: found.get("classes") == list(classes) and _unchanged(root, found["folders"]),
        build=lambda: _packed(list_files(root, classes), classes),
    )
    return Files(root, _unpacked(content["names"]), content["labels"].tolist(), content["folders"])


def _packed(files: Files, classes: tuple[str, ...]) -> Content:
    return {
        "classes": list(classes),
        "names": torch.frombuffer(bytearray(os.fsencode(SEPARATOR.join(files.names))), dtype=torch.uint8),
        "labels": torch.tensor(files.labels),
        "folders": files.folders,
    }


def _unpacked(names: torch.Tensor) -> list[str]:
    return os.fsdecode(names.numpy().tobytes()).split(SEPARATOR)


def _unchanged(root: Path, folders: dict[str, int]) -> bool:
    """Whether no file came or went: that changes the modification time of its folder."""
    try:
        return all((root / name).stat().st_mtime_ns == time for name, time in folders.items())
    except FileNotFoundError:
        return False
