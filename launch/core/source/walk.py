"""List the files of a folder that are uploaded, and check their limits.  Reads only ignore files."""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from launch.core import shell
from trainer.errors import SettingsError, one_line

GIT, DOCKER = ".gitignore", ".dockerignore"

# Character classes, which pathspec would read as plain letters.
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "digit": "0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_CLASS = re.compile(rf"\[:({'|'.join(_CLASSES)}):\]")
_BRACKETS = re.compile(r"(?<!\\)\[(?!\^/\])\^?\]?[^\]]*\]")  # except [^/], which pathspec makes of a question mark


@dataclass(frozen=True)
class Layer:
    """The patterns of one file in order, each with whether it ignores or re-includes.

    They match names relative to `folder`, with slashes, and with one at the end of a folder's name.
    """

    folder: Path
    patterns: tuple[tuple[re.Pattern[str], bool], ...]
    file: Path

    def ignores(self, path: Path, is_folder: bool) -> bool | None:
        """Whether the last pattern that matches `path` ignores it; None if none matches."""
        name = path.relative_to(self.folder).as_posix() + "/" * is_folder
        return next((ignores for pattern, ignores in reversed(self.patterns) if pattern.search(name)), None)


@dataclass(frozen=True)
class Ignored:
    """The patterns that apply in one folder: .gitignore's, outermost first, and .dockerignore's."""

    git: tuple[Layer, ...] = ()
    docker: Layer | None = None

    def why(self, path: Path, is_folder: bool = False) -> Path | None:
        """The ignore file that excludes `path`; None if it is part of the source.

        The parent folder must be part of it: as with git, nothing below an ignored folder is re-included.
        """
        for layer in reversed(self.git):
            is_ignored = layer.ignores(path, is_folder)
            if is_ignored:
                return layer.file
            if is_ignored is not None:
                break
        return self._docker(path, is_folder)

    def _docker(self, path: Path, is_folder: bool) -> Path | None:
        if self.docker is None or not self.docker.ignores(path, is_folder):
            return None
        # Docker, unlike git, can re-include files of an ignored folder.
        takes_back = not all(ignores for _, ignores in self.docker.patterns)
        return None if is_folder and takes_back else self.docker.file


def at_the_top(top: Path, repository: Path | None) -> Ignored:
    """The ignore rules for `top`, the uploaded folder, which is inside `repository`."""
    lines = [_docker_line(line) for line in _lines(top / DOCKER)]
    patterns = tuple(_compiled(lines))  # a pattern also covers all below what it matches
    ignored = Ignored(docker=Layer(top, patterns, top / DOCKER) if patterns else None)
    if repository is None:
        return within(ignored, top)
    for part in reversed([top, *top.parents]):
        if part.is_relative_to(repository):
            ignored = within(ignored, part)
    return ignored


def within(ignored: Ignored, folder: Path) -> Ignored:
    """The ignore rules for `folder`, given those of its parent."""
    layers = ignored.git
    inside = git_folder(folder)
    if inside is not None:  # a repository or submodule, to which outer patterns do not apply
        layers = _layer(folder, inside / "info/exclude")
    return Ignored((*layers, *_layer(folder, folder / GIT)), ignored.docker)


def git_folder(folder: Path) -> Path | None:
    """The git directory of the repository with the top `folder`; None if it is no top.

    In a worktree or submodule it is named by a file .git: https://git-scm.com/docs/gitrepository-layout
    """
    place = folder / ".git"
    if place.is_dir():
        return place if (place / "HEAD").exists() else None
    named = next(iter(_lines(place)), "")
    if not named.startswith("gitdir:"):
        return None
    place = folder / named.removeprefix("gitdir:").strip()
    shared = next(iter(_lines(place / "commondir")), "").strip()  # of a worktree
    return place / shared if shared else place


def tracked_but_ignored(top: Path) -> tuple[str, ...]:
    """Files below `top` that git both tracks and ignores, as after `git add -f`; none if git fails."""
    listing = ["git", "-C", str(top), "-c", "core.fsmonitor=false", "ls-files", "-zci", "--exclude-standard"]
    try:
        names = shell.run_captured(listing, {"PATH": os.defpath}).out.split("\0")
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(name for name in names if name and os.path.lexists(top / name))


def _layer(folder: Path, file: Path) -> tuple[Layer, ...]:
    patterns = tuple((_exact(pattern), ignores) for pattern, ignores in _compiled(_lines(file)))
    return (Layer(folder, patterns, file),) if patterns else ()


def _lines(file: Path) -> list[str]:
    """The lines of a file; none if there is no such file.  Raises SettingsError if it cannot be read."""
    try:
        return file.read_bytes().decode("utf-8-sig", errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
    except OSError as error:
        raise SettingsError(
            f"cannot read {one_line(file, 300)} ({error.strerror}), which lists what is not sent; make it readable."
        ) from None


def _compiled(lines: Iterable[str]) -> Iterator[tuple[re.Pattern[str], bool]]:
    """The patterns of the lines.  Like git, skips invalid ones, such as a single exclamation mark."""
    for line in lines:
        # All folders below one; pathspec would match files, too.
        line = re.sub(r"/\*\*/\s*$", "/**/*/", line)
        line = _CLASS.sub(lambda found: _CLASSES[found[1]], line)
        if line.strip() == "!/":  # pathspec would match every folder
            continue
        try:
            pattern = GitIgnoreSpecPattern(line)
        except (ValueError, re.error):
            continue
        if pattern.regex is not None:
            # To git, brackets never match a slash.
            yield re.compile(_BRACKETS.sub(r"(?!/)\g<0>", pattern.regex.pattern)), bool(pattern.include)


def _exact(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """Restrict pathspec's pattern, which also matches everything below a folder, to the folder itself.

    pathspec would let `!/folder` re-include everything below the folder, where git re-includes only the folder.
    """
    if "ps_d" in pattern.groupindex:  # pathspec's group for the slash after the name
        return re.compile(rf"(?s:.*?)(?:{pattern.pattern})\Z")
    return pattern if pattern.pattern == "." else re.compile(f"{pattern.pattern}(?s:.)")


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
