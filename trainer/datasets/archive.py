"""Read files from tar archives without unpacking them to disk."""

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

# The last three are raised for damaged headers, which tarfile does not validate.
DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError,
    OverflowError, RecursionError,
)  # fmt: skip
MAGIC: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
)


class Part:
    """A file that begins at byte `start`, for tarfile, which counts from the first byte."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, start: int = 0) -> None:
        self._file, self._start = file, start
        self.name = None

    def read(self, count: int = -1) -> bytes:
        return self._file.read(count)

    def tell(self) -> int:
        return self._file.tell() - self._start

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset + self._start if whence == 0 else offset, whence) - self._start


def tar_of(part: Part) -> tarfile.TarFile:
    """Open an uncompressed tar for reading.  Raises tarfile.TarError."""
    file: Any = part
    return tarfile.open(fileobj=file, mode="r:")


def opener_of(path: Path) -> Callable[[Path], Any] | None:
    """The function that opens the compressed file, by its first bytes; None if it is not compressed."""
    with path.open("rb") as file:
        start = file.read(8)
    return next((opener for magic, opener in MAGIC if start.startswith(magic)), None)


def starts_as_zip(path: Path) -> bool:
    """Whether the file is a zip, by its first bytes."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")  # the second: an empty archive


@contextmanager
def opened(path: Path) -> Iterator[tarfile.TarFile]:
    """Open a tar, compressed or not.  Raises one of DAMAGED."""
    opener = opener_of(path)
    with opener(path) if opener else path.open("rb") as file, tar_of(Part(file)) as tar:
        yield tar


def contents(tar: tarfile.TarFile, select: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The name and content of each regular file whose name `select` accepts.  Raises one of DAMAGED."""
    for info in entries(tar):
        file = tar.extractfile(info) if info.isreg() and select(info.name) else None
        if file is not None:
            yield info.name, file.read()


def entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members of a tar in order, except sparse files.  Raises tarfile.TarError."""
    while (info := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # otherwise tarfile keeps about 1 kB per member
        if info.sparse is None:
            yield info
