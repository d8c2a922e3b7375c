"""Atomic writes, locks and other file helpers.  Torch-free, because the launchers use them too."""

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: str | bytes | Sequence[bytes | memoryview]) -> None:
    """Write `content`, or its pieces, to `path`: readers see the old file or the new one, even after a crash.

    The data is synced to disk before the rename.  Raises OSError, and leaves the old file unchanged.  Does not replace
    special files such as /dev/null.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    data = content.encode() if isinstance(content, str) else content
    pieces = [data] if isinstance(data, bytes) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # from a killed process with the same id; it may be a hard link to another file
    try:
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def append(path: Path, text: str) -> None:
    """Append `text` to a file, created if missing, in one write."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; False for an invalid path too, such as a name that is too long."""
    with suppress(OSError):
        return path.is_dir()
    return False


def is_file(path: Path) -> bool:
    """Whether `path` is a regular file; False for an invalid path too, such as a name that is too long."""
    with suppress(OSError):
        return path.is_file()
    return False


def is_place_for_file(path: Path) -> bool:
    """Whether `path` can be the name of a file: it is not a folder, and its parent folder exists."""
    with suppress(OSError):  # too long
        return not path.is_dir() and path.absolute().parent.is_dir()
    return False


def below(folder: Path) -> Iterator[Path]:
    """All files and folders below a folder, in no order; links are listed but not followed.

    Unlike rglob, it can list a thousand nested folders (a RecursionError in Python 3.11).  Folders without read
    permission, and subfolders that vanish meanwhile, are skipped.  Raises OSError.
    """
    pending = [str(folder)]
    ignored: tuple[type[OSError], ...] = (PermissionError,)
    while pending:
        with suppress(*ignored), os.scandir(pending.pop()) as entries:
            ignored = (PermissionError, FileNotFoundError, NotADirectoryError)
            for entry in entries:
                yield Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises OSError, and ValueError if it is not JSON or is nested too deeply.
    """
    try:
        return json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def digest_of(path: Path) -> str:
    """SHA-256 of a file.  Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock among the threads and processes of this machine; the kernel releases it with its owner.

    On a file system without locks it does nothing.  Raises OSError if the file cannot be created.
    """
    file = open_lock(path)
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def open_lock(path: Path) -> int:
    """Open a file for flock, creating it if missing, and return its descriptor.  Raises OSError.

    Whatever the umask, all users who can write in its folder can use it, so that a team can share the folder.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # owned by another user
        os.fchmod(file, 0o600 | path.absolute().parent.stat().st_mode & 0o666)
    return file
