"""List the files of a folder that are uploaded, and check their limits."""

import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from pathspec import GitIgnoreSpec, PathSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from launch.core import shell
from trainer.errors import SettingsError, one_line

GIT, DOCKER = ".gitignore", ".dockerignore"
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


def list_files(top: Path, in_repository: bool, cwd: Path) -> Listing:
    """The files of the folder `top` that are uploaded: in a git repository, those that git tracks or does not ignore.

    cwd: the working directory, which may hold results of earlier runs.  Raises SettingsError if they are too many or
    too large, if a folder cannot be read, or if a link leads out of `top`.
    """
    is_never_sent, is_ignored = _never_sent(top, cwd), _dockerignore(top)
    names = _git_files(top) if _asks_git(in_repository) else _walked(top, top, _Rules(top), is_never_sent)
    sent = (name for name in names if not is_ignored(name) and not _folder_never_sent(top / name, top, is_never_sent))
    files = list(islice((file for name in sent for file in _file(top / name, top)), _MOST_SEEN + 1))
    files.sort(key=lambda file: file.name)
    check_size(top, files)
    return Listing(top, tuple(files))


def why_left_out(top: Path, in_repository: bool, cwd: Path, name: str) -> str:
    """Why the existing file `name` below `top` is not uploaded."""
    folder = _folder_never_sent(top / name, top, _never_sent(top, cwd))
    if folder:
        return f"a folder {one_line(folder)} is never sent"
    if _dockerignore(top)(name):
        return f"{DOCKER} names it"
    if _asks_git(in_repository):
        rule = shell.run_captured(["git", "-C", str(top), "check-ignore", "--verbose", name]).out
        return f"{one_line(rule.partition(':')[0], 300)} names it" if rule else "git does not list it"
    return f"{GIT} names it" if _Rules(top).ignore(top / name) else "it is not a file"


# ---- git


def _asks_git(in_repository: bool) -> bool:
    return in_repository and shutil.which("git") is not None


def _git_files(top: Path) -> Iterator[str]:
    """The files below `top` that git tracks or does not ignore, also of submodules."""
    listing = ["git", "-C", str(top), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    ended = shell.run_captured(listing)
    if ended.code or "could not open directory" in ended.err:  # with which git ends with 0
        raise SettingsError(f"git cannot list the files of {one_line(top, 300)}: {one_line(ended.err, 300)}")
    for name in sorted(set(ended.out.split("\0")) - {""}):  # a file in conflict is listed several times
        if not _is_folder(top / name):
            yield name
        elif (top / name / ".git").exists():
            yield from (f"{name.rstrip('/')}/{below}" for below in _git_files(top / name))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


# ---- Without git


def _walked(folder: Path, top: Path, rules: "_Rules", is_never_sent: Callable[[Path], bool]) -> Iterator[str]:
    """The files below `folder` that no .gitignore excludes; of repositories within, what git lists."""
    for path in _content(folder):
        if rules.ignore(path):
            continue
        if not _is_folder(path):
            yield _name(path, top)
        elif _asks_git((path / ".git").exists()):
            yield from (_name(path / name, top) for name in _git_files(path))
        elif not is_never_sent(path):
            yield from _walked(path, top, rules, is_never_sent)


def _content(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:  # it was there when its parent was read
        return []
    except OSError as error:
        raise unreadable(folder, error.strerror) from None


class _Rules:
    """The .gitignore files in `top` and in folders below it, each read once.  None takes back what another ignores."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._matcher = cache(lambda folder: _matcher(folder / GIT, lambda lines: GitIgnoreSpec.from_lines(lines)))

    def ignore(self, path: Path) -> bool:
        """Whether one of the files excludes `path`."""
        folders, slash = (folder for folder in path.parents if folder.is_relative_to(self._top)), "/" * _is_folder(path)
        return any(self._matcher(folder)(_name(path, folder) + slash) for folder in folders)


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


# ---- Docker and what is never sent


def _dockerignore(top: Path) -> Callable[[str], bool]:
    """Whether a .dockerignore excludes a name.  Docker, unlike git, can re-include files of an ignored folder."""
    return _matcher(top / DOCKER, lambda lines: PathSpec.from_lines(GitIgnoreSpecPattern, map(_docker_line, lines)))


def _docker_line(line: str) -> str:
    """Translate a line of .dockerignore into one of .gitignore: https://docs.docker.com/build/concepts/context/#syntax

    Its patterns are relative to its own folder, with or without a leading slash.
    """
    if line.startswith("#") or not line.strip():
        return ""
    pattern = line.strip()
    sign = "!" if pattern.startswith("!") else ""
    path = PurePosixPath(pattern.removeprefix("!").strip().lstrip("/"))
    return f"{sign}/{path}" if path.parts else ""


def _matcher(file: Path, compiled: Callable[[list[str]], PathSpec[Any]]) -> Callable[[str], bool]:
    try:
        return compiled(_lines(file)).match_file
    except (ValueError, re.error) as error:
        raise SettingsError(f"{one_line(file, 300)}: {one_line(error, 300)}; correct or remove this line.") from None


def _lines(file: Path) -> list[str]:
    """The lines of a file; none if there is no such file.  Raises SettingsError if it cannot be read."""
    try:
        return file.read_text("utf-8-sig", errors="surrogateescape").splitlines()
    except (FileNotFoundError, IsADirectoryError):
        return []
    except OSError as error:
        raise SettingsError(
            f"cannot read {one_line(file, 300)} ({error.strerror}), which lists what is not sent; make it readable."
        ) from None


def _never_sent(top: Path, cwd: Path) -> Callable[[Path], bool]:
    """Whether a folder is never sent: git's own, caches, virtual environments, and results of earlier runs."""

    @cache
    def is_never_sent(folder: Path) -> bool:
        is_results = folder.name == _RESULTS and folder.parent in (top, cwd)
        return folder.name in _NEVER or is_results or (folder / "pyvenv.cfg").exists()

    return is_never_sent


def _folder_never_sent(path: Path, top: Path, is_never_sent: Callable[[Path], bool]) -> str:
    """The name of the first folder between `top` and `path` that is never sent; empty without one."""
    folders = [folder for folder in path.parents if folder.is_relative_to(top) and folder != top]
    return next((folder.name for folder in reversed(folders) if is_never_sent(folder)), "")


# ---- Files


def _file(path: Path, top: Path) -> Iterator[File]:
    """The file at `path`; nothing if it is a pipe, a socket or a device, which git ignores as well."""
    name = path.relative_to(top).as_posix()
    try:
        found = path.lstat()
        link = str(path.readlink()) if stat.S_ISLNK(found.st_mode) else ""
    except (FileNotFoundError, NotADirectoryError):  # git still tracks it
        return
    except OSError as error:
        raise unreadable(path, error.strerror) from None
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
