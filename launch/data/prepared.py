"""A prepared data set on this machine: the manifest of trainer.prepare, and the files that it names."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from launch.core.manifest import MANIFEST, RECORD, Content, content_in
from trainer.datasets.manifest import FORMAT, VERSION, Manifest, read_manifest
from trainer.datasets.tree import find_tree, list_files
from trainer.errors import DataError, SettingsError, one_line
from trainer.files import below, digest_of

REPORT = "bad-images.txt"  # trainer.prepare's list of skipped images


@dataclass(frozen=True)
class File:
    """A file of the data set.  name: relative to its folder, with /; sha256: hexadecimal."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Prepared:
    """A prepared data set.  files: without the manifest, by name; digest: of the manifest, which has theirs."""

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
    """Read the data set in `folder`.  Raises DataError for an invalid manifest, and for files of another size."""
    path = folder / MANIFEST
    try:
        manifest = path.read_bytes()
        content = json.loads(manifest)
    except OSError as error:
        raise DataError(f"{_shown(path)} cannot be read ({error.strerror}); run trainer.prepare again.") from error
    except (RecursionError, ValueError) as error:
        raise DataError(f"{_shown(path)} is damaged ({one_line(error, 200)}); run trainer.prepare again.") from error
    kind = (content.get("format"), content.get("version")) if isinstance(content, dict) else (FORMAT, VERSION)
    if kind != (FORMAT, VERSION) and None not in kind:
        raise DataError(
            f"{_shown(path)} is of format {one_line(kind[0], 100)}, version {one_line(kind[1], 100)}, and this toolkit "
            f"publishes {FORMAT}, version {VERSION}; prepare the images again: python -m trainer.prepare SRC DST."
        )
    found = read_manifest(content, str(path))  # as strictly as in training, as it is untrusted
    files = tuple(sorted(_files(folder, found), key=lambda file: file.name))
    for file in files:
        _check_size(folder / file.name, file)
    return Prepared(folder, found.name, content_in(content), manifest, files)


def read_plain(folder: Path, name: str) -> Prepared:
    """A folder to be published as it is.  Raises SettingsError and DataError if it cannot be.

    Its manifest, which exists only in S3, lists the files.
    """
    if not folder.is_dir():
        raise SettingsError(f"there is no folder {_shown(folder)}.")
    with _readable(folder):
        paths = [path for path in sorted(below(folder)) if _is_plain_file(path)]
        files = tuple(File(path.relative_to(folder).as_posix(), path.stat().st_size, digest_of(path)) for path in paths)
    taken = {file.name for file in files} & {MANIFEST, RECORD}
    if taken:
        raise SettingsError(
            f"{_shown(folder / min(taken))}: --plain needs this name for its own list; give it another."
        )
    if not files:
        raise DataError(f"{_shown(folder)} has no files.")
    manifest = json.dumps({"format": "plain", "files": [astuple(file) for file in files]}).encode()
    return Prepared(folder, name, Content(0, 0, sum(file.bytes for file in files), 0), manifest, files)


def _is_plain_file(path: Path) -> bool:
    """Whether it is a file instead of a folder.  Raises DataError for anything else."""
    if path.is_symlink() or not (path.is_dir() or path.is_file()):
        raise DataError(f"{_shown(path)} is a link, or no file, and cannot be published; replace or move it.")
    return path.is_file()


def _files(folder: Path, manifest: Manifest) -> Iterator[File]:
    for split in (manifest.splits.train, manifest.splits.val):
        index = folder / split.index.file
        yield File(split.index.file, index.stat().st_size if index.is_file() else -1, split.index.sha256)
        for shard in split.shards:
            yield File(shard.file, shard.bytes, shard.sha256)


def _shown(path: str | Path) -> str:
    return one_line(path, 300)


def _check_size(path: Path, file: File) -> None:
    if not path.is_file():
        raise DataError(f"{path} is missing, though the manifest names it; run trainer.prepare again.")
    if path.stat().st_size != file.bytes:
        raise DataError(
            f"{path} has {path.stat().st_size:,} bytes and {file.bytes:,} in the manifest; run trainer.prepare again."
        )


def check_nothing_else(prepared: Prepared) -> None:
    """Raise DataError for files outside of the data set, as the snapshot gets the whole folder."""
    known = {file.name for file in prepared.files} | {MANIFEST, REPORT}
    with _readable(prepared.folder):
        paths = sorted(below(prepared.folder))
    for path in paths:
        name = path.relative_to(prepared.folder).as_posix()
        if path.is_symlink():
            raise DataError(f"{_shown(path)} is a link, which leads nowhere in a snapshot; put there what it leads to.")
        if not path.is_dir() and name not in known:
            raise DataError(
                f"{_shown(path)} is no part of the data set, and would be published; move it to another folder."
            )


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Turn errors of reading the folder into DataError, such as a path that is too long."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{_shown(error.filename or folder)} cannot be read ({error.strerror}); move it away."
        ) from error


def check_source(prepared: Prepared, source: Path) -> None:
    """Raise SettingsError if the source has other images than when it was prepared."""
    made_of = json.loads(prepared.manifest).get("source", {})
    if made_of.get("kind") != "folder":
        return
    tree, images, size = find_tree(source), 0, 0
    for root in (tree.train, tree.evaluation):
        for name in list_files(root, tree.classes).names:
            images, size = images + 1, size + _size(root / name)
    if (images, size) != (made_of["images"], made_of["bytes"]):
        raise SettingsError(
            f"{source} has {images:,} images of {size:,} bytes, and {prepared.folder} was made of "
            f"{made_of['images']:,} of {made_of['bytes']:,}; delete it to have them prepared "
            "again, or publish that folder itself."
        )


def _size(image: Path) -> int:
    """The size of an image as trainer.prepare counts it, which skips broken links."""
    try:
        return image.stat().st_size
    except OSError:
        return 0


def check_digest(path: Path, file: File) -> None:
    """Raise DataError if the file's content differs from the manifest."""
    if digest_of(path) != file.sha256:
        raise DataError(f"{path} has changed since it was prepared (SHA-256); run trainer.prepare again.")


def count_source(source: Path) -> tuple[int, int]:
    """Number of files and bytes in a source to be prepared.  Raises SettingsError if there are none."""
    if source.is_file():
        return 1, source.stat().st_size
    if not source.is_dir():
        raise SettingsError(f"{source}: no such folder; give one with images, or one that trainer.prepare has made.")
    with _readable(source):
        sizes = [path.stat().st_size for path in below(source) if path.is_file()]
    if not sizes:
        raise SettingsError(f"{source} is empty; give a folder with train/ and val/, and a folder per class in each.")
    return len(sizes), sum(sizes)
