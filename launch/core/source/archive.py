"""A tar.gz that is the same, byte for byte, for equal files on every machine.  Pure."""

import hashlib
import io
import struct
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

# A stored block of deflate, RFC 1951 section 3.2.4, has at most this many bytes.
_BLOCK = 65535
# The time of every file, as the digest must not depend on it: 1980-01-02, as scripts may zip their own code, and zip
# files have no earlier times.
TIME = 315_619_200


@dataclass(frozen=True)
class Member:
    """A file of an archive; or a symbolic link, if `link` is not empty; or an empty folder."""

    name: str
    content: bytes = b""
    is_program: bool = False
    link: str = ""
    is_folder: bool = False


@dataclass(frozen=True)
class Archive:
    """A tar.gz, and its SHA-256 in hexadecimal digits."""

    content: bytes
    digest: str


def pack(members: Iterable[Member]) -> Archive:
    """Pack the members sorted by name, without owners, and with one time.

    Nothing is compressed: versions of zlib compress differently, so the digest would depend on the machine, and the
    same files would be uploaded again after a change of Python.
    """
    content = stored(tar(sorted(members, key=lambda member: member.name)))
    return Archive(content, hashlib.sha256(content).hexdigest())


def tar(members: Iterable[Member]) -> bytes:
    """A tar file of the members in their order."""
    archive = io.BytesIO()
    # pax adds headers only for names that are long or not ASCII, and nothing in them depends on the machine.
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as file:
        for member in members:
            file.addfile(_entry(member), io.BytesIO(member.content))
    return archive.getvalue()


def _entry(member: Member) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(member.name)  # without owner
    entry.mtime = TIME
    entry.mode = 0o755 if member.is_program or member.is_folder else 0o644
    if member.link:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, member.link, 0o777
    elif member.is_folder:
        entry.type = tarfile.DIRTYPE
    else:
        entry.size = len(member.content)
    return entry


def stored(content: bytes) -> bytes:
    """`content` as a gzip file of stored blocks: RFC 1952, without a name and a time.

    The bytes are the same on every machine, unlike the output of zlib's versions.
    """
    parts = [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"]
    for start in range(0, len(content), _BLOCK):
        block = content[start : start + _BLOCK]
        is_last = start + _BLOCK >= len(content)
        parts += [struct.pack("<BHH", is_last, len(block), len(block) ^ 0xFFFF), block]
    parts.append(struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF))
    return b"".join(parts)
