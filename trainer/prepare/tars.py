"""Images in tars and zips.  Only the headers of a tar are read; images are then read in place without unpacking.

Compressed archives and zips are converted to a plain tar first.  ImageNet (ILSVRC 2012) consists of three files: a tar
of tars to train on, a flat tar to evaluate on, and the devkit.
"""

import io
import re
import shutil
import tarfile
import zipfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from trainer.datasets.archive import DAMAGED, Part, contents, entries, opened, opener_of, starts_as_zip, tar_of
from trainer.datasets.tree import EVALUATION, classes_in, evaluation_half, is_hidden, is_image
from trainer.errors import DataError, one_line
from trainer.prepare.listing import Item, Listing, Origin, Source

HALVES = ("train", *EVALUATION)
TRAIN, VAL = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKITS = ("ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_devkit_t12.tar")
META, TRUTH = "data/meta.mat", "data/ILSVRC2012_validation_ground_truth.txt"  # in the devkit
_NUMBER = re.compile(r"_(\d{8})\.jpe?g$", re.IGNORECASE)


class Member(NamedTuple):
    """A regular file in a tar.  offset: of its first byte."""

    name: str
    offset: int
    size: int


def members(path: Path, within: Member | None = None) -> Iterator[Member]:
    """The files of an uncompressed tar, or of a tar that is a member of it, in order.  Raises DataError."""
    try:
        with path.open("rb") as file:
            if within is not None:
                file.seek(within.offset)
            start = file.tell()
            with tar_of(Part(file, start)) as tar:
                for info in entries(tar):
                    if info.isreg():
                        yield Member(info.name, start + info.offset_data, info.size)
    except DAMAGED as error:
        name = one_line(path, 300) + (f", {one_line(within.name)}" if within else "")
        raise DataError(f"{name} is not a tar, or is damaged ({one_line(error)}); get it again.") from error


def uncompressed(path: Path, work_dir: Path) -> Path:
    """`path` if it is a plain tar, else one made from it in the folder `work_dir` and reused.  Raises DataError."""
    is_zip, opener = starts_as_zip(path), opener_of(path)
    if opener is None and not is_zip:
        return path
    status = path.stat()
    target = work_dir / f"source-{status.st_size}-{status.st_mtime_ns}.tar"
    if not target.exists():
        part = target.with_suffix(".part")
        try:
            with part.open("wb") as plain:
                if opener is None:
                    _zip_to_tar(path, plain)
                else:
                    with opener(path) as packed:
                        shutil.copyfileobj(packed, plain, 2**20)
        except (*DAMAGED, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of bz2
                raise
            raise DataError(f"{one_line(path, 300)} is damaged ({one_line(error)}); get it again.") from error
        else:
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return target


def _zip_to_tar(path: Path, plain: IO[bytes]) -> None:
    """Copy the images of a zip into a tar.  Raises DataError, or one of DAMAGED."""
    try:
        with zipfile.ZipFile(path) as packed, tarfile.open(fileobj=plain, mode="w") as tar:
            for entry in packed.infolist():
                member = tarfile.TarInfo(entry.filename.replace("\\", "/"))  # as some programs on Windows write them
                member.size = entry.file_size
                if any(_places(member.name)):
                    with packed.open(entry) as file:
                        tar.addfile(member, file)
    except (NotImplementedError, RuntimeError) as error:  # unsupported compression, or a password
        raise DataError(
            f"{one_line(path, 300)} cannot be read here ({one_line(error, 200)}); unzip it, and give the folder as SRC."
        ) from error


def tar_of_folders(path: Path, work_dir: Path) -> Source:
    """The images of a tar or zip with train/ and val/ (or test/), and a folder for each class.  Raises DataError."""
    tar = uncompressed(path, work_dir)
    found = _halves(tar, path.name)
    # The parent of train/ may itself be in a folder called dev/, and train/ may have a class called train.
    tops = sorted((top for top, half in found if half == "train"), key=len)
    evaluation = evaluation_half([half for top, half in found if [top] == tops[:1]], one_line(path, 300))
    if not tops or evaluation is None:
        lacking = "val/ or test/" if tops else "train/"
        raise DataError(
            f"{one_line(path, 300)} has no images in {lacking}; it needs train/CLASS/IMAGE and val/CLASS/IMAGE."
        )
    return in_order("tar", path.name, found[tops[0], "train"], found[tops[0], evaluation], evaluation)


class Unsorted:
    """The images of one split in archive order, to be sorted at the end.  what: its name in messages."""

    def __init__(self, tar: Path, what: str) -> None:
        self.what = what
        self.folders: dict[str, array[int]] = {}  # the numbers of the images in each class's folder
        self._images = Listing(Origin(tar))
        self._changed = tar.stat().st_mtime_ns

    def add(self, name: str, member: Member) -> None:
        """Add an image.  name: CLASS/..."""
        self.folders.setdefault(name.partition("/")[0], array("Q")).append(len(self._images))
        self._images.add(Item(name, 0, member.size, self._changed, member.offset))

    def sorted(self, classes: Sequence[str]) -> Listing:
        """The images in the order in which the trainer lists a folder: by class, then by name.

        Raises DataError if the classes differ, and for duplicate names, as in a tar that was appended to.
        """
        folder_of = classes_in(self.folders, self.what)
        if other := sorted(folder_of.keys() ^ set(classes)):
            raise DataError(
                f"{self.what} has other classes than train/, such as {one_line(other[0])}; both must have the same."
            )
        listing, before = Listing(self._images.origin), ""
        for label, name in enumerate(classes):
            for item in sorted(self._images[number] for number in self.folders[folder_of[name]]):
                if item.name == before:
                    raise DataError(
                        f"{self.what} has {one_line(before, 200)} twice, and it is unclear which one is valid; "
                        "unpack it, and give the folder as SRC."
                    )
                listing.add(item._replace(label=label))
                before = item.name
        return listing


def _halves(tar: Path, name: str) -> dict[tuple[str, str], Unsorted]:
    """The images by parent folder and split, such as ("photos", "train").  name: of the tar, for messages."""
    found = dict[tuple[str, str], Unsorted]()
    for member in members(tar):
        for top, half, inner in _places(member.name):
            if (top, half) not in found:
                found[top, half] = Unsorted(tar, f"{name}, {half}/")
            found[top, half].add(inner, member)
    return found


def in_order(kind: str, name: str, train: Unsorted, evaluation: Unsorted, half: str) -> Source:
    """Sort both splits by class.  Raises DataError if their classes differ, or have names that cannot be printed.

    half: the name of the evaluation folder.
    """
    classes = list(classes_in(train.folders, train.what))
    return Source(kind, name, classes, train.sorted(classes), evaluation.sorted(classes), half)


def _places(name: str) -> Iterator[tuple[str, str, str]]:
    """Possible interpretations of a member's name: parent folder, split, and the rest from the class on."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for place, part in enumerate(parts[:-2]):
        inner = "/".join(parts[place + 1 :])
        if part in HALVES and is_image(inner):
            yield "/".join(parts[:place]), part, inner


def ilsvrc(folder: Path) -> Source:
    """The images of ImageNet's three files in `folder`.  Raises DataError if one is missing or does not match."""
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
    """The class of a validation image, such as n01440764.  Raises DataError."""
    match = _NUMBER.search(member.name)
    number = int(match[1]) if match else 0
    if number not in wnids:
        raise DataError(
            f"{VAL} has {one_line(member.name)}, whose class the devkit does not know; download both again."
        )
    return wnids[number]


def read_devkit(folder: Path) -> dict[int, str]:
    """The class of each validation image by number, from 1 on.  Raises DataError.

    As in torchvision, the synsets without children in meta.mat are the classes.
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
    """The synsets without children, such as n01440764, by number.  Raises ValueError."""
    import numpy as np
    from scipy.io import loadmat

    try:
        rows = np.atleast_1d(loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"])
        return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows if row["num_children"] == 0}
    except Exception as error:  # SciPy raises many types for damaged files
        raise ValueError(f"{META}: {error}") from error
