"""Files written whole or not at all, and what is in folders.  Torch-free, as the launchers use the same."""

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
    """Writes `content`, or its pieces, to `path`: a reader, or a crash, sees the old file or the new one, never a part.

    The data is on disk before the name is.  Raises OSError; then the old file is unchanged.  What is no ordinary file,
    such as /dev/null, is never replaced by one.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    whole = content.encode() if isinstance(content, str) else content
    pieces = [whole] if isinstance(whole, bytes) else whole
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of a killed process of that number; it may be a second name of another file
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
    """Adds `text` to a file, which is made if it is not there, in one write."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


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
    """The content of a JSON file.

    Raises OSError, and ValueError for what is no JSON or is nested too deeply.
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
    """Inside, no other thread or process of this machine has the lock, which the kernel ends with its owner.

    Where a file system has no locks, all have it.  Raises OSError if the file cannot be made.
    """
    file = open_lock(path)
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def open_lock(path: Path) -> int:
    """The descriptor of a file for flock, made if it is not there.  Raises OSError.

    All who may write in its folder may use it, whatever the umask, so that a team can share the folder.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # a colleague's
        os.fchmod(file, 0o600 | path.absolute().parent.stat().st_mode & 0o666)
    return file
