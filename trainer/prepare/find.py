"""What SRC is: a folder of images, ILSVRC's tars, CIFAR's archive, or any tar of images."""

import os
from collections.abc import Sequence
from pathlib import Path

from trainer.datasets.manifest import MANIFEST, find_manifest
from trainer.datasets.tree import find_tree, images_by_class
from trainer.errors import DataError, one_line
from trainer.prepare import cifar, ilsvrc, tars
from trainer.prepare.listing import Found, Item, Listing, Origin


def find_source(source: Path, room: Path) -> Found:
    """The images in `source`.  room: a folder where what is compressed is unpacked.  Raises DataError."""
    if source.is_file():
        return _archive(source, room)
    if (source / ilsvrc.TRAIN).exists() or (source / ilsvrc.VAL).exists():
        return ilsvrc.ilsvrc(source)
    if archive := next((source / name for name in cifar.ARCHIVES if (source / name).is_file()), None):
        return cifar.cifar(archive, room)
    if find_manifest(source) is not None:
        raise DataError(f"{one_line(source, 300)} is prepared already: it has a {MANIFEST}; prepare its source.")
    return _folder(source)


def _archive(source: Path, room: Path) -> Found:
    if source.name in (ilsvrc.TRAIN, ilsvrc.VAL):
        return ilsvrc.ilsvrc(source.parent)
    if source.name in cifar.ARCHIVES:
        return cifar.cifar(source, room)
    return tars.tar_of_folders(source, room)


def _folder(source: Path) -> Found:
    try:
        tree = find_tree(source)
    except DataError as error:
        raise DataError(str(error).replace("point --data-dir at", "give as SRC")) from error
    train, val = (_listing(root, tree.classes) for root in (tree.train, tree.evaluation))
    return Found("folder", source.resolve().name, tree.classes, train, val, tree.evaluation.name)


def _listing(root: Path, classes: Sequence[str]) -> Listing:
    listing = Listing(Origin(root))
    for label, files in enumerate(images_by_class(root, classes, {})):
        for file in files:
            listing.add(_item(root, file, label))
    return listing


def _item(root: Path, name: str, label: int) -> Item:
    try:
        status = os.stat(f"{root}{os.sep}{name}")  # a Path for each file would double the time
    except OSError:
        return Item(name, label, 0)  # reading it says what is wrong
    return Item(name, label, status.st_size, status.st_mtime_ns)
