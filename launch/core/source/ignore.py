"""Which files of a folder are not part of the source: .gitignore, .git/info/exclude and .dockerignore.

pathspec matches the patterns instead of git, which may be missing, lists no files of submodules, and refuses folders of
other users.  So a file that git tracks although .gitignore excludes it is left out, and a user's own core.excludesFile
does not count: every machine uploads the same files.
"""

import os
import re
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
