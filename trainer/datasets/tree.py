"""Folders of images: train/ plus val/ or test/, one folder per class.  Reads names only, never the files.

Defines what counts as an image, a split and a class, both in folders and in archives.
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
    """The folders of both splits, and their classes."""

    train: Path
    evaluation: Path
    classes: tuple[str, ...]  # in the order of their labels


@dataclass(frozen=True)
class Files:
    """The images of one split."""

    root: Path
    names: Sequence[str]  # relative to root
    labels: Sequence[int]
    folders: dict[str, int]  # modification time (ns) of each folder visited

    def shown(self, index: int) -> str:
        """The image's name for messages, such as val/cat/0007.jpg."""
        return one_line(f"{self.root.name}/{self.names[index]}", 200)


def is_image(name: str) -> bool:
    """Whether a file of that name counts as an image.  name: may include its folders."""
    return name.lower().endswith(SUFFIXES) and not is_hidden(name)


def is_hidden(name: str) -> bool:
    """Whether a part of the name begins with a dot, such as macOS's ._cat.jpg beside cat.jpg in archives."""
    return any(part.startswith(".") and part != "." for part in name.split("/"))


def class_name(folder: str) -> str:
    """The class name for a folder, in Unicode's NFC form: macOS may store accented letters decomposed."""
    return unicodedata.normalize("NFC", folder).strip()


def classes_in(folders: Iterable[str], place: object) -> dict[str, str]:
    """Map class names to folders, sorted by class.

    Raises DataError for a name that cannot be printed, and for two folders of the same class.
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
    """The name of the evaluation split, or None: test/ only if there is no other.

    Raises DataError if there are several others.
    """
    found = [name for name in EVALUATION if name in halves]
    if len(others := [name for name in found if name != TEST]) > 1:
        raise DataError(
            f"{place} has {' and '.join(f'{name}/' for name in others)}, but only one can be used for evaluation; "
            "remove or rename the others."
        )
    return found[0] if found else None


def find_tree(data_dir: Path) -> Tree:
    """Find both splits in `data_dir`.  Raises DataError naming the folder that is missing or does not fit."""
    if not data_dir.is_dir():
        raise DataError(
            f"no folder {one_line(data_dir, 300)}; point --data-dir at the one that holds train/ and val/ (or test/)."
        )
    train = data_dir / "train"
    if not train.is_dir():
        raise DataError(f"{data_dir} has no train/; put one folder per class into {train}.")
    # Resolved, so that a link from one name to another does not count as a second split.
    halves = {(data_dir / name).resolve(): name for name in reversed(EVALUATION) if (data_dir / name).is_dir()}
    half = evaluation_half(halves.values(), data_dir)
    if half is None:
        raise DataError(f"{data_dir} has neither val/ nor test/; put evaluation images, sorted by class, into one.")
    evaluation = data_dir / half
    classes = tuple(_class_folders(train))
    if not classes:
        raise DataError(f"{train} has no class folders; sort its images into one folder per class.")
    _check_same_classes(classes, evaluation)
    if len(classes) == 1:
        raise DataError(
            f"{train} has only one class folder, {classes[0]}; sort its images into two or more, or point --data-dir "
            "one folder deeper if it contains the classes."
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
    """The images of each class, sorted.  folders: receives the modification times of the folders visited."""
    folder_of = _class_folders(root)
    for name in classes:
        folder = folder_of.get(name, name)
        found = sorted(_images_under(root, folder, folders))
        if not found:
            raise DataError(f"{root / folder} has no images ({' '.join(SUFFIXES)}); fill it, or remove the class.")
        yield found


def _images_under(root: Path, folder: str, folders: dict[str, int]) -> Iterator[str]:
    """The names of a class's images, relative to `root`, including those in subfolders."""
    # Read the time before listing, so that a file added in between is detected at the next start.
    folders[folder] = (root / folder).stat().st_mtime_ns
    with os.scandir(root / folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                yield from _images_under(root, f"{folder}/{entry.name}", folders)
            elif entry.name.lower().endswith(SUFFIXES):  # not is_image(), which would check for the dot again
                yield f"{folder}/{entry.name}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a folder; False for a circular link."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _class_folders(root: Path) -> dict[str, str]:
    """The class folders in `root`, as classes_in().  Raises DataError for a broken link, which may have been one."""
    found = []
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                found.append(entry.name)
            elif entry.is_symlink() and not Path(entry.path).exists():
                raise DataError(f"{one_line(entry.path, 200)} is a broken link; fix or remove it.")
    return classes_in(found, root)


def _check_same_classes(classes: tuple[str, ...], evaluation: Path) -> None:
    found = _class_folders(evaluation)
    if not found:
        raise DataError(f"{evaluation} has no class folders; sort its images into the same folders as in train/.")
    missing, unknown = sorted(set(classes) - set(found)), sorted(set(found) - set(classes))
    problems = [f"{_listed(missing)} missing"] * bool(missing) + [f"{_listed(unknown)} not in train/"] * bool(unknown)
    if problems:
        raise DataError(
            f"{evaluation} has different class folders from train/: {'; '.join(problems)}; both must have the same."
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
