"""The code that a publishing instance runs: this toolkit's, as it is here, without what publishing does not need."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files

PACKAGES = ("trainer", "launch", "infra")
SUFFIXES = (".py", ".yaml", ".json", ".txt")
# What publishing imports and reads of this repository.  Packages are installed by infra/locks/publish.txt, with hashes.
LOCK = "infra/locks/publish.txt"
NEEDED = ("trainer/", "launch/__init__.py", "launch/core/", "launch/aws/", "launch/data/", "infra/")
NOT_NEEDED = (
    "launch/aws/examination/", "infra/locks/", "infra/cloudformation/", "infra/rehearse/", "infra/report/",
    "infra/sbom.cdx.json",
)  # fmt: skip


@dataclass(frozen=True)
class Bundle:
    """The code for the instance.  sha256: hexadecimal."""

    content: bytes
    sha256: str


@cache
def bundle() -> Bundle:
    """The code as a .tar.gz without owners and times; cached."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in sorted(_contents()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    content = packed.getvalue()
    return Bundle(content, hashlib.sha256(content).hexdigest())


def _contents() -> Iterator[tuple[str, bytes]]:
    for package in PACKAGES:
        for name, file in _below(package, files(package)):
            if name == LOCK or (name.startswith(NEEDED) and not name.startswith(NOT_NEEDED)):
                yield name, file.read_bytes()


def _below(name: str, folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        inner = f"{name}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _below(inner, entry)
        elif entry.name.endswith(SUFFIXES):
            yield inner, entry
