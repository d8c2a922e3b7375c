"""Tars that anybody may have made, read without unpacking anything, and no further than is honest."""

import bz2
import gzip
import lzma
import math
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

LARGEST_HEADER = 2**18  # bytes, with all that belongs to it: attributes, a long name, a list of a file's holes
MOST_KEPT = 2**13  # bytes that headers say of all members that follow; git archive says 52
LARGEST_CONTENT = 2**28  # bytes of all files that are read whole; CIFAR-10's have 186 million
# The last three: of hostile headers, which tarfile believes, such as a thousand that each say how long the next one's
# name is.
DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError,
    OverflowError, RecursionError,
)  # fmt: skip
MAGIC: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
)


# Longer than a file's name.  Pythons older than autumn 2024 take hours for a megabyte of digits (CVE-2024-6232).
_DIGITS = re.compile(rb"[0-9]{301}")


class Entry(tarfile.TarInfo):
    """What a tar, opened on a Part, says of a member: never so much that it takes gigabytes or hours."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        """All that is read of a header goes through here."""
        part: Any = tar.fileobj
        if self.type == tarfile.XGLTYPE:
            part.keep(self.size)
        is_usual = self.type == tarfile.REGTYPE  # and nothing more is read of it
        with nullcontext() if is_usual else part.reading_a_header():
            found: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]  # not in typeshed
        found.pax_headers = {}  # whose meaning it has taken over, and which a tar keeps of all of its members
        return found


class Part:
    """A file from `start` on, for tarfile, which counts from the first byte.

    most: bytes that are read at once: a header is read whole, and few kB may say, or unpack to, one of gigabytes.
    """

    def __init__(self, file: IO[bytes] | gzip.GzipFile, start: int = 0, most: int = LARGEST_HEADER) -> None:
        self._file, self._start, self._most = file, start, most
        self._left = math.inf  # bytes of the header that is being read
        self._kept = 0  # bytes of headers for all members that follow
        self.name = None

    @contextmanager
    def reading_a_header(self) -> Iterator[None]:
        """Inside, no more is read than a header may have, with those within it."""
        is_outermost = self._left == math.inf
        if is_outermost:
            self._left = LARGEST_HEADER
        try:
            yield
        finally:
            if is_outermost:
                self._left = math.inf

    def keep(self, size: int) -> None:
        """Counts what a header says of all members that follow, which a tar keeps, too."""
        self._kept += size
        if self._kept > MOST_KEPT:
            raise tarfile.ReadError(f"more than {MOST_KEPT:,} bytes that are about all members")

    def read(self, count: int = -1) -> bytes:
        if not 0 <= count <= self._most:
            raise tarfile.ReadError(f"{count} bytes at once")
        self._left -= count
        if self._left < 0:
            raise tarfile.ReadError(f"a header of more than {LARGEST_HEADER:,} bytes")
        data = self._file.read(count)
        if self._left < math.inf and _DIGITS.search(data):
            raise tarfile.ReadError("a header with a number of more than 300 digits")
        return data

    def tell(self) -> int:
        return self._file.tell() - self._start

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place + self._start if whence == 0 else place, whence) - self._start


def tar_of(part: Part) -> tarfile.TarFile:
    """A tar that is not compressed, to read from.  Raises tarfile.TarError."""
    file: Any = part
    return tarfile.open(fileobj=file, mode="r:", tarinfo=Entry)


def opener_of(path: Path) -> Callable[[Path], Any] | None:
    """What decompresses the file, by its first bytes; None where it is not compressed."""
    with path.open("rb") as file:
        start = file.read(8)
    return next((opener for magic, opener in MAGIC if start.startswith(magic)), None)


def starts_as_zip(path: Path) -> bool:
    """Whether the file is a zip, by its first bytes."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")  # the second: an empty one


@contextmanager
def opened(path: Path) -> Iterator[tarfile.TarFile]:
    """A tar, compressed or not, whose files are read whole.  Raises one of DAMAGED."""
    opener = opener_of(path)
    with opener(path) if opener else path.open("rb") as file, tar_of(Part(file, most=LARGEST_CONTENT)) as tar:
        yield tar


def contents(tar: tarfile.TarFile, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each ordinary file that is wanted.

    Raises one of DAMAGED, also for more than LARGEST_CONTENT in all.
    """
    left = LARGEST_CONTENT
    for info in entries(tar):
        file = tar.extractfile(info) if info.isreg() and wanted(info.name) else None
        if file is not None:
            left -= info.size
            if left < 0:
                raise tarfile.ReadError(f"files of more than {LARGEST_CONTENT:,} bytes")
            yield info.name, file.read()


def entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """What is in it, in order, but files with holes: ten bytes may say that one is of gigabytes.

    Raises tarfile.ReadError.
    """
    last = -1
    while (info := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # or it keeps a kilobyte of each
        if info.size < 0:  # after which tarfile would read the same header for ever, see CVE-2025-8194
            raise tarfile.ReadError("a member of less than no bytes")
        if info.offset <= last:  # a file with holes has a second size, and shows that one
            raise tarfile.ReadError("a member whose header was read before")
        last = info.offset
        if info.sparse is None:
            yield info
