"""Folders of images: train/ plus val/ or test/, one folder per class.  Looks at names, never into files.

What counts as an image, as a half and as a class is decided here, for folders and for archives.
"""

import os
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.errors import DataError, one_line

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
TEST = "test"
EVALUATION = ("val", "valid", "validation", "dev", TEST)
SHOWN = 5


@dataclass(frozen=True)
class Tree:
    """Where the two halves lie, and the names of the classes of both, in the order of their labels."""

    train: Path
    evaluation: Path
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Files:
    """The images of one half.  names: relative to root; folders: modification time (ns) of each folder visited."""

    root: Path
    names: Sequence[str]
    labels: Sequence[int]
    folders: dict[str, int]

    def shown(self, index: int) -> str:
        """A name the user recognises, such as val/cat/0007.jpg."""
        return one_line(f"{self.root.name}/{self.names[index]}", 200)


def is_image(name: str) -> bool:
    """Whether a file of that name, with the folders it lies in, is an image."""
    return name.lower().endswith(SUFFIXES) and not is_hidden(name)


def is_hidden(name: str) -> bool:
    """As the ._cat.jpg that macOS leaves beside cat.jpg on other systems' disks and in archives."""
    return any(part.startswith(".") and part != "." for part in name.split("/"))


def class_name(folder: str) -> str:
    """The name of the class in a folder of that name: macOS may write letters in another form than Linux."""
    return unicodedata.normalize("NFC", folder).strip()


def classes_in(folders: Iterable[str], place: object) -> dict[str, str]:
    """The folder of each class, by the name of the class, sorted.

    Raises DataError for a name that cannot be printed, and for two folders of one class.
    """
    found = dict[str, str]()
    for folder in sorted(folders):
        name = class_name(folder)
        if not name or not name.isprintable():
            raise DataError(
                f"{place} has a class folder whose name cannot be printed, {one_line(name or repr(folder))}; rename it."
            )
        if name in found:
            raise DataError(
                f"{place} has two folders for the class {name}, {found[name]!a} and {folder!a}; move their images "
                "into one of them."
            )
        found[name] = folder
    return dict(sorted(found.items()))


def evaluation_half(halves: Collection[str], place: object) -> str | None:
    """The one of EVALUATION to evaluate on, None without any: test/ only where there is no other.

    Raises DataError where more than one other is there.
    """
    found = [name for name in EVALUATION if name in halves]
    if len(others := [name for name in found if name != TEST]) > 1:
        raise DataError(
            f"{place} has {' and '.join(f'{name}/' for name in others)}, and one is evaluated on; remove or rename "
            "the others."
        )
    return found[0] if found else None


def find_tree(data_dir: Path) -> Tree:
    """The tree in `data_dir`.  Raises DataError saying which folder is missing or does not fit."""
    if not data_dir.is_dir():
        raise DataError(
            f"no folder {one_line(data_dir, 300)}; point --data-dir at the one that holds train/ and val/ (or test/)."
        )
    train = data_dir / "train"
    if not train.is_dir():
        raise DataError(f"{data_dir} has no train/; put one folder per class into {train}.")
    # A link from one name to another makes no second half.
    halves = {(data_dir / name).resolve(): name for name in reversed(EVALUATION) if (data_dir / name).is_dir()}
    half = evaluation_half(halves.values(), data_dir)
    if half is None:
        raise DataError(f"{data_dir} has neither val/ nor test/; put images to evaluate on, by class, into one.")
    evaluation = data_dir / half
    classes = tuple(_class_folders(train))
    if not classes:
        raise DataError(f"{train} has no class folders; sort its images into one folder per class.")
    _check_same_classes(classes, evaluation)
    if len(classes) == 1:
        raise DataError(
            f"{train} has one class folder, {classes[0]}, and there is nothing to tell apart; sort its images into two "
            "or more, or point --data-dir one folder deeper if the classes are within."
        )
    return Tree(train, evaluation, classes)


def list_files(root: Path, classes: tuple[str, ...]) -> Files:
    """All images under `root`, class by class, sorted.  Raises DataError naming a class without any."""
    names: list[str] = []
    labels: list[int] = []
    folders: dict[str, int] = {}
    for label, found in enumerate(images_by_class(root, classes, folders)):
        names += found
        labels += [label] * len(found)
    return Files(root, names, labels, folders)


def images_by_class(root: Path, classes: Sequence[str], folders: dict[str, int]) -> Iterator[list[str]]:
    """The images of each class, as list_files() has them.  folders: filled with those visited."""
    folder_of = _class_folders(root)
    for name in classes:
        folder = folder_of.get(name, name)
        found = sorted(_images_under(root, folder, folders))
        if not found:
            raise DataError(f"{root / folder} has no images ({' '.join(SUFFIXES)}); fill it, or remove the class.")
        yield found


def _images_under(root: Path, folder: str, folders: dict[str, int]) -> Iterator[str]:
    """Names relative to `root`.  Folders within a class folder belong to that class."""
    # The time is taken before the listing, so that a file added in between is noticed at the next start.
    folders[folder] = (root / folder).stat().st_mtime_ns
    with os.scandir(root / folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                yield from _images_under(root, f"{folder}/{entry.name}", folders)
            elif entry.name.lower().endswith(SUFFIXES):  # is_image(), which would look for the dot again
                yield f"{folder}/{entry.name}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """False, too, for a link that goes in circles."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _class_folders(root: Path) -> dict[str, str]:
    """See classes_in().  Raises DataError, too, for a link to nothing, which may have been one."""
    found = []
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                found.append(entry.name)
            elif entry.is_symlink() and not Path(entry.path).exists():
                raise DataError(f"{one_line(entry.path, 200)} links to nothing; fix the link, or remove it.")
    return classes_in(found, root)


def _check_same_classes(classes: tuple[str, ...], evaluation: Path) -> None:
    found = _class_folders(evaluation)
    if not found:
        raise DataError(f"{evaluation} has no class folders; sort its images into the same ones as train/ has.")
    missing, unknown = sorted(set(classes) - set(found)), sorted(set(found) - set(classes))
    problems = [f"{_listed(missing)} missing"] * bool(missing) + [f"{_listed(unknown)} not in train/"] * bool(unknown)
    if problems:
        raise DataError(f"{evaluation} has other class folders than train/: {'; '.join(problems)}; both need the same.")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
