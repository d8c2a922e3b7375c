"""A prepared data set on this machine: the manifest of trainer.prepare, and the files that it names."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.core.published import MANIFEST, Content, content_in
from trainer.datasets.tree import find_tree, list_files
from trainer.errors import DataError, SettingsError

FORMAT, VERSION = "webdataset", 1
REPORT = "bad-images.txt"  # trainer.prepare's, of what it left out
CHUNK = 2**20


@dataclass(frozen=True)
class File:
    """A file of the data set.  name: relative to its folder, with /; sha256: hexadecimal."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Prepared:
    """files: all but the manifest, by name; digest: the manifest's, which has those of all others in it."""

    folder: Path
    name: str
    content: Content
    manifest: bytes
    files: tuple[File, ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.manifest).hexdigest()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files) + len(self.manifest)

    def path(self, file: File) -> Path:
        return self.folder / file.name


def is_prepared(folder: Path) -> bool:
    """Whether trainer.prepare has finished there: it writes the manifest last."""
    return (folder / MANIFEST).is_file()


def read_prepared(folder: Path) -> Prepared:
    """The data set in `folder`.  Raises DataError for a manifest that is not ours, and for files of another size."""
    manifest = (folder / MANIFEST).read_bytes()
    try:
        content = json.loads(manifest)
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise DataError(
                f"{folder / MANIFEST} is of format {content['format']}, version {content['version']}, and this toolkit "
                f"publishes {FORMAT}, version {VERSION}; prepare the images again: python -m trainer.prepare SRC DST."
            )
        files = tuple(sorted(_files(folder, content["splits"]), key=lambda file: file.name))
        prepared = Prepared(folder, str(content["name"]), content_in(content), manifest, files)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder / MANIFEST} is damaged ({error}); run trainer.prepare again.") from error
    for file in files:
        _check_size(prepared.path(file), file)
    return prepared


def _files(folder: Path, splits: Mapping[str, Any]) -> Iterator[File]:
    for split in splits.values():
        index = split["index"]
        name = _inside(index["file"])
        yield File(name, (folder / name).stat().st_size if (folder / name).is_file() else -1, str(index["sha256"]))
        for shard in split["shards"]:
            yield File(_inside(shard["file"]), int(shard["bytes"]), str(shard["sha256"]))


def _inside(name: str) -> str:
    """`name`, if it is a path below the data set's folder.  Raises ValueError: a manifest may come from anywhere."""
    if name.startswith("/") or "\\" in name or {"", ".", ".."} & set(name.split("/")):
        raise ValueError(f"{name!r} is no file in it")
    return name


def _check_size(path: Path, file: File) -> None:
    if not path.is_file():
        raise DataError(f"{path} is missing, though the manifest names it; run trainer.prepare again.")
    if path.stat().st_size != file.bytes:
        raise DataError(
            f"{path} has {path.stat().st_size:,} bytes and {file.bytes:,} in the manifest; run trainer.prepare again."
        )


def check_nothing_else(prepared: Prepared) -> None:
    """Raises DataError for what a snapshot should not hold: all of the folder goes into its file system, as it is."""
    known = {file.name for file in prepared.files} | {MANIFEST, REPORT}
    for path in sorted(prepared.folder.rglob("*")):
        name = path.relative_to(prepared.folder).as_posix()
        if path.is_symlink():
            raise DataError(f"{path} is a link, which leads nowhere in a snapshot; put there what it leads to.")
        if not path.is_dir() and name not in known:
            raise DataError(f"{path} is no part of the data set, and would be published; move it to another folder.")


def check_source(prepared: Prepared, source: Path) -> None:
    """Raises SettingsError for a folder of images in which there are others than when it was prepared."""
    made_of = json.loads(prepared.manifest).get("source", {})
    if made_of.get("kind") != "folder":
        return
    tree, images, size = find_tree(source), 0, 0
    for root in (tree.train, tree.evaluation):
        for name in list_files(root, tree.classes).names:
            images, size = images + 1, size + (root / name).stat().st_size
    if (images, size) != (made_of.get("images"), made_of.get("bytes")):
        raise SettingsError(
            f"{source} has {images:,} images of {size:,} bytes, and {prepared.folder} was made of "
            f"{made_of.get('images', 0):,} of {made_of.get('bytes', 0):,}; delete it to have them prepared again, or "
            "publish that folder itself."
        )


def check_digest(path: Path, file: File) -> None:
    """Raises DataError if the file's content is not what the manifest says."""
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != file.sha256:
        raise DataError(f"{path} has changed since it was prepared (SHA-256); run trainer.prepare again.")


def count_source(source: Path) -> tuple[int, int]:
    """Files and bytes in what is to be prepared.  Raises SettingsError if there are none."""
    if source.is_file():
        return 1, source.stat().st_size
    if not source.is_dir():
        raise SettingsError(f"{source}: no such folder; give one with images, or one that trainer.prepare has made.")
    sizes = [path.stat().st_size for path in source.rglob("*") if path.is_file()]
    if not sizes:
        raise SettingsError(f"{source} is empty; give a folder with train/ and val/, and a folder per class in each.")
    return len(sizes), sum(sizes)
