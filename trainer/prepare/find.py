"""What SRC is: a folder of images, ILSVRC's tars, CIFAR's archive, or any tar of images."""

import os
from pathlib import Path

from trainer.datasets.manifest import MANIFEST, find_manifest
from trainer.datasets.tree import find_tree, list_files
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
    halves = []
    for root in (tree.train, tree.evaluation):
        listing = Listing(Origin(root))
        for label, name in enumerate(tree.classes):
            for file in list_files(root, (name,)).names:
                listing.add(_item(root, file, label))
        halves.append(listing)
    return Found("folder", source.resolve().name, tree.classes, *halves)


def _item(root: Path, name: str, label: int) -> Item:
    try:
        status = os.stat(f"{root}{os.sep}{name}")  # a Path for each file would double the time
    except OSError:
        return Item(name, label, 0)  # reading it says what is wrong
    return Item(name, label, status.st_size, status.st_mtime_ns)
