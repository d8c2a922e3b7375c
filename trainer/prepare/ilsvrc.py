"""ImageNet as it is handed out (ILSVRC 2012): a tar of tars to train on, a flat one to evaluate on, and the devkit."""

import io
import re
from collections.abc import Mapping
from pathlib import Path

from trainer.datasets.archive import DAMAGED, contents, opened
from trainer.datasets.tree import is_hidden, is_image
from trainer.errors import DataError, one_line
from trainer.prepare.listing import Found
from trainer.prepare.tars import Member, Unsorted, in_order, members

TRAIN, VAL = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKITS = ("ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_devkit_t12.tar")
META, TRUTH = "data/meta.mat", "data/ILSVRC2012_validation_ground_truth.txt"  # in the devkit
_NUMBER = re.compile(r"_(\d{8})\.jpe?g$", re.IGNORECASE)


def ilsvrc(folder: Path) -> Found:
    """The images of the three files in `folder`.  Raises DataError for one that is missing or does not fit."""
    for name in (TRAIN, VAL):
        if not (folder / name).is_file():
            raise DataError(f"{one_line(folder, 300)} has no {name}; put it beside the others, from image-net.org.")
    wnids = read_devkit(folder)
    train, val = Unsorted(folder / TRAIN, TRAIN), Unsorted(folder / VAL, VAL)
    for outer in members(folder / TRAIN):
        if not is_hidden(outer.name):
            for member in filter(_is_image, members(folder / TRAIN, outer)):
                train.add(f"{outer.name.removesuffix('.tar')}/{member.name}", member)
    for member in filter(_is_image, members(folder / VAL)):
        val.add(f"{_class_of(member, wnids)}/{member.name}", member)
    return in_order("ilsvrc", "ILSVRC2012", train, val, "val")


def _is_image(member: Member) -> bool:
    return is_image(member.name)


def _class_of(member: Member, wnids: Mapping[int, str]) -> str:
    """The class of an image to evaluate on, such as n01440764.  Raises DataError."""
    match = _NUMBER.search(member.name)
    number = int(match[1]) if match else 0
    if number not in wnids:
        raise DataError(
            f"{VAL} has {one_line(member.name)}, whose class the devkit does not know; download both again."
        )
    return wnids[number]


def read_devkit(folder: Path) -> dict[int, str]:
    """The class of each image to evaluate on, by the image's number from 1 on.  Raises DataError.

    As torchvision reads it: of the synsets in meta.mat, those without children are the classes.
    """
    devkit = next((folder / name for name in DEVKITS if (folder / name).is_file()), None)
    if devkit is None:
        raise DataError(
            f"{one_line(folder, 300)} has no {DEVKITS[0]}, which says what the images of {VAL} show; "
            "put it there, from image-net.org."
        )
    try:
        with opened(devkit) as tar:
            found = contents(tar, lambda name: name.endswith((META, TRUTH)))
            files = {META if name.endswith(META) else TRUTH: data for name, data in found}
        synsets = _synsets(files[META])
        return {number: synsets[int(line)] for number, line in enumerate(files[TRUTH].split(), start=1)}
    except (*DAMAGED, KeyError, TypeError, IndexError) as error:
        raise DataError(f"{one_line(devkit, 300)} is damaged ({one_line(error)}); get it again.") from error


def _synsets(meta: bytes) -> dict[int, str]:
    """The synsets without children, such as n01440764, by their number.  Raises ValueError."""
    import numpy as np
    from scipy.io import loadmat

    try:
        rows = np.atleast_1d(loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"])
        return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows if row["num_children"] == 0}
    except Exception as error:  # SciPy raises whatever a stray byte makes it stumble over
        raise ValueError(f"{META}: {error}") from error
