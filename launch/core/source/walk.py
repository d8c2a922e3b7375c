"""List the files of a folder that are uploaded, and check their limits.  Reads only ignore files."""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from launch.core.source.ignore import Ignored, at_the_top, within
from trainer.errors import SettingsError, one_line

MOST_FILES = 10_000
MOST_BYTES = 50_000_000
# Enough to find the largest folders, and few enough to be counted while the user waits.
_MOST_SEEN = 100_000
# Never a part of the source.  Virtual environments are recognized by pyvenv.cfg.
_NEVER = frozenset({".git", "__pycache__", "node_modules"})
_RESULTS = "runs"  # the launchers' results, below the working directory


@dataclass(frozen=True)
class File:
    """A file of the source, or a symbolic link if `link` is not empty.  name: below the folder, with slashes."""

    name: str
    bytes: int
    is_program: bool
    link: str = ""


@dataclass(frozen=True)
class Listing:
    """What is uploaded of `top`, sorted by name."""

    top: Path
    files: tuple[File, ...]


def list_files(top: Path, repository: Path | None, cwd: Path) -> Listing:
    """The files of the folder `top` that are uploaded.

    repository: the one that contains it; cwd: the working directory, which may hold results of earlier runs.  Raises
    SettingsError if they are too many or too large, if a folder cannot be read, or if a link leads out of `top`.
    """
    files = list[File]()
    for file in _below(top, at_the_top(top, repository), cwd):
        files.append(file)
        if len(files) > _MOST_SEEN:
            break
    files.sort(key=lambda file: file.name)
    check_size(top, files)
    return Listing(top, tuple(files))


def why_left_out(top: Path, repository: Path | None, cwd: Path, path: Path) -> Path | str:
    """The ignore file that excludes the existing `path` below `top`, or another reason why it is not uploaded."""
    ignored = at_the_top(top, repository)
    folder = top
    for part in path.relative_to(top).parts:
        entry = folder / part
        is_folder = entry.is_dir() and not entry.is_symlink()
        reason = ignored.why(entry, is_folder)
        if reason is not None:
            return reason
        if _is_never_sent(entry, top, cwd):
            return f"a folder {part} is never sent"
        if is_folder:
            ignored = within(ignored, entry)
        folder = entry
    return "it is not a file"


def _below(top: Path, ignored: Ignored, cwd: Path) -> Iterator[File]:
    """The files below a folder.  Not recursive, as a repository may nest 2,000 folders."""
    waiting = [(top, ignored)]
    while waiting:
        folder, rules = waiting.pop()
        for entry in _entries(folder):
            path = folder / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if _is_never_sent(path, top, cwd) or rules.why(path, is_folder) is not None:
                continue
            if is_folder:
                waiting.append((path, within(rules, path)))
            else:
                yield from _file(path, top)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:  # it was there when its parent was read
        return []
    except OSError as error:
        raise unreadable(folder, error.strerror) from None


def _is_never_sent(path: Path, top: Path, cwd: Path) -> bool:
    if path.name in _NEVER:
        return True
    if path.name == _RESULTS and path.parent in (top, cwd):
        return path.is_dir()
    return (path / "pyvenv.cfg").exists()


def _file(path: Path, top: Path) -> Iterator[File]:
    """The file at `path`; nothing if it is a pipe, a socket or a device, which git ignores as well."""
    name = path.relative_to(top).as_posix()
    try:
        found = path.lstat()
        link = str(path.readlink()) if stat.S_ISLNK(found.st_mode) else ""
    except FileNotFoundError:
        return
    if link:
        yield File(name, 0, False, _within(path, link, top))
    elif stat.S_ISREG(found.st_mode):
        yield File(name, found.st_size, bool(found.st_mode & stat.S_IXUSR))


def _within(path: Path, link: str, top: Path) -> str:
    """A link's target, relative to the link.  Raises SettingsError if it is outside of `top`, as it is not uploaded."""
    real = Path(os.path.realpath(path))
    target = Path(os.path.normpath(path.parent / link))
    if not real.is_relative_to(top):
        name = one_line(path.relative_to(top).as_posix(), 300)
        raise SettingsError(
            f"the link {name} leads out of the source folder {one_line(top, 300)}, to {one_line(link, 300)}; put the "
            f"line /{name} into .gitignore, or the files themselves in its place."
        )
    if not Path(link).is_absolute() and target.is_relative_to(top):
        return link
    return os.path.relpath(real, path.parent.resolve())


def unreadable(path: Path, reason: str | None) -> SettingsError:
    """The error for a file or folder of the source that cannot be read."""
    return SettingsError(
        f"cannot read {one_line(path, 300)} ({reason}), which would be sent; make it readable, or add it to .gitignore."
    )


def check_size(top: Path, files: list[File]) -> None:
    """Raise SettingsError, with the largest files and folders, if the source is too large."""
    total = sum(file.bytes for file in files)
    if len(files) <= MOST_FILES and total <= MOST_BYTES:
        return
    too_many = len(files) > MOST_FILES
    sizes = Counter({file.name: 1 if too_many else file.bytes for file in files})
    largest = ", ".join(f"{one_line(name)} ({_amount(size, too_many)})" for name, size in _largest(sizes))
    count = f"more than {_MOST_SEEN:,}" if len(files) > _MOST_SEEN else f"{len(files):,}"
    raise SettingsError(
        f"the source folder {one_line(top, 300)} has {count} files with {total / 1e6:,.0f} MB, and at most "
        f"{MOST_FILES:,} with {MOST_BYTES / 1e6:.0f} MB are sent.  The largest: {largest}.  Name in .gitignore what "
        "the training does not need, give a smaller folder as --source-dir, or publish data with "
        "`python -m launch.data publish`."
    )


def _amount(size: int, is_count: bool) -> str:
    return f"{size:,} files" if is_count else f"{size / 1e6:,.1f} MB"


def _largest(sizes: Counter[str]) -> Iterable[tuple[str, int]]:
    """The three largest files and folders; a folder counts as one unless most of it is a single entry."""
    totals, children = Counter[str](), dict[str, set[str]]()
    for name, size in sizes.items():
        parts = PurePosixPath(name).parts
        for depth in range(len(parts)):
            path = "/".join(parts[: depth + 1]) + ("/" if depth + 1 < len(parts) else "")
            totals[path] += size
            children.setdefault("".join(f"{part}/" for part in parts[:depth]), set()).add(path)
    return [(name, totals[name]) for name in _narrowed(totals, children)]


def _narrowed(totals: Counter[str], children: dict[str, set[str]]) -> Iterator[str]:
    for name in sorted(children.get("", ()), key=lambda name: (-totals[name], name))[:3]:
        while name in children:
            biggest = max(children[name], key=lambda child: (totals[child], child))
            if totals[biggest] < 0.9 * totals[name]:
                break
            name = biggest
        yield name
