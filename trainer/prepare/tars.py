"""Images in a tar: found by reading its headers alone, then read where they lie, without unpacking anything."""

import shutil
import tarfile
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trainer.datasets.archive import DAMAGED, Part, entries, opener_of, tar_of
from trainer.datasets.tree import EVALUATION, SUFFIXES
from trainer.errors import DataError, one_line
from trainer.files import create_anew
from trainer.prepare.listing import Found, Item, Listing, Origin

HALVES = ("train", *EVALUATION)
LARGEST_SIZE = 2**62  # bytes, of what no disk has


class Member(NamedTuple):
    """An ordinary file of a tar.  offset: of its first byte."""

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
                        _check_size(info)
                        yield Member(info.name, start + info.offset_data, info.size)
    except DAMAGED as error:
        name = one_line(path, 300) + (f", {one_line(within.name)}" if within else "")
        raise DataError(f"{name} is no tar, or a damaged one ({one_line(error)}); get it again.") from error


def _check_size(info: tarfile.TarInfo) -> None:
    """Raises OverflowError for a size, which may have 88 bits, that is no file's."""
    if info.size > LARGEST_SIZE:
        raise OverflowError(f"{one_line(info.name)} of {info.size:,} bytes")


def uncompressed(path: Path, room: Path) -> Path:
    """`path`, or what it is compressed from, in the folder `room`, where a later start finds it.  Raises DataError."""
    opener = opener_of(path)
    if opener is None:
        return path
    status = path.stat()
    target = room / f"source-{status.st_size}-{status.st_mtime_ns}.tar"
    if not target.exists():
        part = target.with_suffix(".part")
        try:
            with opener(path) as packed, create_anew(part) as plain:
                shutil.copyfileobj(packed, plain, 2**20)
        except (*DAMAGED, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the disk's, and not bz2's
                raise
            raise DataError(f"{one_line(path, 300)} is damaged ({one_line(error)}); get it again.") from error
        part.replace(target)
    return target


def tar_of_folders(path: Path, room: Path) -> Found:
    """The images of any tar with train/ and val/ (or test/) and a folder for each class.  Raises DataError."""
    tar = uncompressed(path, room)
    found = {name: Unsorted(tar, f"{path.name}, {name}/") for name in HALVES}
    for member in members(tar):
        half, inner = _place(member.name)
        if half:
            found[half].add(inner, member)
    evaluation = next((found[name] for name in EVALUATION if found[name].classes), None)
    if not found["train"].classes or evaluation is None:
        lacking = "val/ or test/" if found["train"].classes else "train/"
        raise DataError(
            f"{one_line(path, 300)} has no images in {lacking}; it needs train/CLASS/IMAGE and val/CLASS/IMAGE."
        )
    return in_order("tar", path.name, found["train"], evaluation)


class Unsorted:
    """The images of one half, as they come.  what: what they are called in messages."""

    def __init__(self, tar: Path, what: str) -> None:
        self.what = what
        self.classes: dict[str, array[int]] = {}  # the numbers of each class's images
        self._images = Listing(Origin(tar))
        self._changed = tar.stat().st_mtime_ns

    def add(self, name: str, member: Member) -> None:
        """name: CLASS/..."""
        self.classes.setdefault(name.partition("/")[0], array("Q")).append(len(self._images))
        self._images.add(Item(name, 0, member.size, self._changed, member.offset))

    def sorted(self, classes: Sequence[str]) -> Listing:
        """As the trainer lists a folder: by class, then by name.

        Raises DataError if the classes are others, and for a name that is there twice, as in a tar that was added to.
        """
        if other := sorted(self.classes.keys() ^ set(classes)):
            raise DataError(
                f"{self.what} has other classes than train/, such as {one_line(other[0])}; both need the same."
            )
        listing, before = Listing(self._images.origin), ""
        for label, name in enumerate(classes):
            for item in sorted(self._images[number] for number in self.classes[name]):
                if item.name == before:
                    raise DataError(
                        f"{self.what} has {one_line(before, 200)} twice, and which of them counts is unclear; unpack "
                        "it, and give the folder as SRC."
                    )
                listing.add(item._replace(label=label))
                before = item.name
        return listing


def in_order(kind: str, name: str, train: Unsorted, val: Unsorted) -> Found:
    """A source of both halves.  Raises DataError if their classes differ, or have names that cannot be printed."""
    classes = sorted(train.classes)
    if odd := next((one for one in classes if not one.isprintable()), None):
        raise DataError(f"{train.what} has a class whose name cannot be printed, {one_line(odd)}; rename it.")
    return Found(kind, name, classes, train.sorted(classes), val.sorted(classes))


def _place(name: str) -> tuple[str, str]:
    """The half that a member belongs to, and its name from the class on; "" for what is no image of a class."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for place, part in enumerate(parts):
        if part in HALVES:
            inner = parts[place + 1 :]
            return (part, "/".join(inner)) if _is_image(inner) else ("", "")
    return "", ""


def _is_image(inner: Sequence[str]) -> bool:
    """inner: what is below train/ or val/."""
    hidden = any(part.startswith(".") for part in inner)
    return len(inner) > 1 and not hidden and inner[-1].lower().endswith(SUFFIXES)
