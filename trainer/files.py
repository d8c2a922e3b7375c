"""Files written whole or not at all, and read only if they are files.  Torch-free, as the launchers use the same."""

import errno
import json
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, TextIO

LARGEST_JSON = 2**24  # bytes


def write_atomically(path: Path, content: str | bytes | Sequence[bytes | memoryview]) -> None:
    """Writes `content`, or its pieces, to `path`: a reader, or a crash, sees the old file or the new one, never a part.

    The data is on disk before the name is.  Raises OSError; then the old file is unchanged.  What is no ordinary file,
    such as /dev/null, is never replaced by one.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    whole = content.encode() if isinstance(content, str) else content
    pieces = [whole] if isinstance(whole, bytes) else whole
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of a process of that number which was killed
    try:
        with temporary.open("xb") as file:  # never what a link of that name, which others may foresee, leads to
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def append(path: Path, text: str) -> None:
    """Adds `text` to a file, in one write; see open_to_append()."""
    with open_to_append(path) as file:
        file.write(text)


def open_to_append(path: Path) -> TextIO:
    """An ordinary file, which is made if it is not there, to add UTF-8 to.

    Raises OSError, also for a link, which in a stranger's folder could lead to any file, and for a pipe.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file: TextIO = os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a pipe that somebody reads
        file.close()
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    return file


def create_anew(path: Path) -> BinaryIO:
    """An empty file in the place of what is there, opened to write: never what a link of that name leads to.

    Raises OSError, also for a folder.
    """
    path.unlink(missing_ok=True)
    return path.open("xb")


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; False, too, for what can be no path, such as a name that is too long."""
    with suppress(OSError):
        return path.is_dir()
    return False


def is_file(path: Path) -> bool:
    """Whether `path` is an ordinary file; as is_folder."""
    with suppress(OSError):
        return path.is_file()
    return False


def is_place_for_file(path: Path) -> bool:
    """Whether a file of that name can be made: in a folder that is there, and none itself."""
    with suppress(OSError):  # too long
        return not path.is_dir() and path.absolute().parent.is_dir()
    return False


def below(folder: Path) -> Iterator[Path]:
    """All that is in a folder, and in the folders within, in no order; links are named and not followed.

    As rglob, which a thousand folders within each other end with a RecursionError (Python 3.11).  Left out are folders
    that this user may not read, and those within that have gone meanwhile.  Raises OSError.
    """
    waiting = [str(folder)]
    passing: tuple[type[OSError], ...] = (PermissionError,)
    while waiting:
        with suppress(*passing), os.scandir(waiting.pop()) as entries:
            passing = (PermissionError, FileNotFoundError, NotADirectoryError)
            for entry in entries:
                yield Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def read_json(path: Path) -> Any:
    """Reads a JSON file of at most LARGEST_JSON bytes.

    Raises OSError, and ValueError for what is no JSON, is nested too deeply or has a name twice.
    """
    try:
        return json.loads(read_regular(path, LARGEST_JSON), object_pairs_hook=_without_duplicates)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def read_regular(path: Path, largest: int | None = None) -> bytes:
    """The bytes of an ordinary file of at most `largest` bytes, or of what a link leads to.

    Raises OSError, also as open_regular() does.
    """
    with open_regular(path) as file:
        return _content(file, path, largest)


def open_regular(path: Path) -> FileIO:
    """An ordinary file, or what a link leads to, to read from.

    Raises OSError, also for a pipe, a socket or a device, whose reader might wait for ever.
    """
    # Without O_NONBLOCK even opening a pipe waits, for somebody who writes.
    return _regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path)


def open_lock(path: Path) -> int:
    """The descriptor of an ordinary file for flock, made if it is not there, for those alone who may write beside it.

    Whoever can open a file, if only to read it, can lock it, and would keep this user waiting for as long as he likes.
    Raises OSError, also for a link, which in a stranger's folder could lead to any file, and for a pipe.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    with suppress(OSError):  # a stranger's; of our own an earlier version may have left one that others can read
        _share(file, path.absolute().parent)
    return file


def _share(file: int, folder: Path) -> None:
    """Lets a team use a lock in whose folder each may go on with what another has begun, and nobody else."""
    found, listed = folder.stat(), _acl(file)
    if found.st_mode & stat.S_ISVTX:  # where nobody can remove what is another's, nor needs to lock it
        os.fchmod(file, 0o600)
    elif listed:  # which the folder hands on
        os.setxattr(file, _ACL, _ACL_HEAD + b"".join(struct.pack(_ACL_ENTRY, *_writers(*entry)) for entry in listed))
    else:
        group = [rights << 3 for tag, rights, _ in _acl(folder) if tag == _OWNING_GROUP] or [found.st_mode]
        writers = (group[0] & 0o020 if found.st_gid == os.fstat(file).st_gid else 0) | found.st_mode & 0o002
        os.fchmod(file, 0o600 | writers | writers << 1)


# https://man7.org/linux/man-pages/man5/acl.5.html, and linux/posix_acl_xattr.h: version 2, then each entry's tag,
# rights and id.  Where there is a list, the bits of a mode for the group are the most that anybody in it can have.
_ACL, _ACL_HEAD, _ACL_ENTRY = "system.posix_acl_access", b"\2\0\0\0", "<HHI"
_OWNER, _OWNING_GROUP, _MOST = 1, 4, 16


def _acl(place: int | Path) -> list[tuple[int, int, int]]:
    """Who may do what with a file or a folder, where users are named that its mode does not; else nothing."""
    try:
        return list(struct.iter_unpack(_ACL_ENTRY, os.getxattr(place, _ACL)[len(_ACL_HEAD) :]))
    except (OSError, AttributeError, struct.error):  # no list, no system with lists, or another version of them
        return []


def _writers(tag: int, rights: int, who: int) -> tuple[int, int, int]:
    """An entry that lets read and write whoever may write, and nobody else even read."""
    return tag, 6 if rights & 2 or tag in (_OWNER, _MOST) else 0, who


def read_below(top: Path, name: str, largest: int) -> bytes:
    """The bytes of the ordinary file `name`, with slashes, below `top`: never what a link leads to.

    Who may write in the folder could put a link in the place of what was looked at before, also of a folder on the way.
    Raises OSError, as read_regular().
    """
    *folders, last = name.split("/")
    place = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
            os.close(place)
            place = inner
        handle = os.open(last, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)
    with _regular(handle, top / name) as file:
        return _content(file, top / name, largest)


def _regular(handle: int, path: Path) -> FileIO:
    """The ordinary file of a descriptor, which is closed if it is none."""
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    return FileIO(handle)


def _content(file: FileIO, path: Path, largest: int | None) -> bytes:
    if largest is None:
        return file.read()
    size = os.fstat(file.fileno()).st_size
    content = _at_most(largest + 1, file, size + 1) if size <= largest else None
    if content is None or len(content) > largest:
        raise OSError(errno.EFBIG, f"larger than {largest / 2**20:,.0f} MiB", str(path))
    return content


def _at_most(left: int, file: FileIO, ask: int) -> bytes:
    """What is in the file, which may grow while it is read, or be of no known size: `left` bytes of it, at most."""
    pieces = list[bytes]()
    while left and (piece := file.read(min(ask, left))):
        pieces.append(piece)
        left, ask = left - len(piece), 2**20
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
