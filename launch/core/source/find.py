"""Find the source of a user's own training: which folder is uploaded, and the path of the script in it."""

import os
import posixpath
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from launch.core.source.archive import Archive, Member, pack
from launch.core.source.keys import check_name, check_text
from launch.core.source.walk import (
    File,
    Listing,
    check_size,
    list_files,
    unreadable,
    why_left_out,
)
from trainer.errors import SettingsError, one_line
from trainer.script.requirements import files_in, lines_of, text_of

REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True)
class Source:
    """A user's code as it is uploaded."""

    top: Path  # the folder
    entry: str  # the script relative to top, with slashes; "" for a module
    cwd: str  # the working directory relative to top; "." if it is outside
    requirements: str  # the requirements.txt relative to top; "" without one
    files: tuple[str, ...]  # names, sorted
    bytes: int  # total of the files
    archive: Archive = field(repr=False)

    @property
    def digest(self) -> str:
        """The SHA-256 of the archive, in hexadecimal digits."""
        return self.archive.digest

    @property
    def word(self) -> str:
        """The script relative to the working directory: src/train.py, or ../train.py; "" for a module."""
        return Path(os.path.relpath(self.entry, self.cwd)).as_posix() if self.entry else ""


def find(
    script: Path | None, module: str | None, source_dir: Path | None, cwd: Path, *, home: Path | None = None
) -> Source:
    """The source of `script`, a path that may be relative to cwd, or of `module`, as after `python -m`.

    source_dir: the folder that is uploaded; None for the top of the script's repository, or without one its folder, and
    for a module cwd.  home: the home folder, which is refused as a source; None for this user's.  Raises SettingsError.
    """
    cwd, home = cwd.resolve(), (home or Path.home()).resolve()
    path = existing(cwd / script, script) if script else None
    top = _top(path, source_dir, cwd, home)
    entry = _entry(path, top) if path else ""
    in_repository = _repository(top, home) is not None
    members = read_files(list_files(top, in_repository, cwd))
    found = _source(top, entry, cwd.relative_to(top).as_posix() if cwd.is_relative_to(top) else ".", members)
    if entry and entry not in found.files:
        raise _left_out(f"--script {one_line(entry, 300)}", why_left_out(top, in_repository, cwd, entry))
    for name in set(_required_files(found)).difference(found.files):
        what = f"{one_line(name, 300)}, which {found.requirements} needs,"
        raise _left_out(what, _why_not(name, top, in_repository, cwd))
    if module is not None:
        _check_module(module, found)
    return found


def _source(top: Path, entry: str, standing: str, members: tuple[Member, ...]) -> Source:
    names = tuple(member.name for member in members)
    if standing != "." and not any(name.startswith(f"{standing}/") for name in names):
        members += (Member(standing, is_folder=True),)  # an archive of files has no empty folders
    beside = Path(entry).with_name(REQUIREMENTS).as_posix() if entry else REQUIREMENTS
    return Source(
        top=top,
        entry=entry,
        cwd=standing,
        requirements=next((name for name in (beside, REQUIREMENTS) if name in names), ""),
        files=names,
        bytes=sum(len(member.content) for member in members),
        archive=pack(members),
    )


# ---- The folder


def _top(script: Path | None, source_dir: Path | None, cwd: Path, home: Path) -> Path:
    """The folder that is uploaded.  Raises SettingsError if it is or contains the home folder."""
    if source_dir is not None:
        top = _folder(cwd / source_dir)
    elif script is not None:
        top = _repository(script.parent, home) or script.parent
    else:
        top = cwd
    if top == home or top in home.parents:
        raise SettingsError(
            f"all of your home folder {one_line(home, 300)} would be sent; put the training into a folder of its own, "
            "or give --source-dir FOLDER."
        )
    return top


def _repository(folder: Path, home: Path) -> Path | None:
    """The top of the git repository that contains `folder`, or None.

    A repository of the home folder does not count, as it holds settings.
    """
    for top in (folder, *folder.parents):
        if top == home or top in home.parents:
            return None
        if (top / ".git").exists():  # a file in a submodule or worktree
            return top
    return None


def _folder(path: Path) -> Path:
    try:
        found = path.resolve(strict=True)
        if not found.is_dir():
            raise NotADirectoryError
    except (OSError, RuntimeError):  # a loop of links
        raise SettingsError(f"--source-dir: there is no folder {one_line(path, 300)}.") from None
    return found


# ---- The script


def existing(path: Path, given: Path) -> Path:
    """The script's path with its folder resolved.  Raises SettingsError if it is not a file."""
    shown = one_line(given, 300)
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise SettingsError(f"--script: there is no file {shown}{_nearest(path) or '.'}") from None
        raise SettingsError(f"--script: cannot read {shown} ({error.strerror}).") from None
    if stat.S_ISDIR(mode):
        raise SettingsError(f"--script: {shown} is a folder; give the file in it, or its module as --module.")
    if not stat.S_ISREG(mode):
        raise SettingsError(f"--script: {shown} is not a file.")
    return Path(os.path.normpath(path)).parent.resolve() / path.name


def _nearest(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in os.scandir(path.parent) if entry.name.endswith((".py", path.suffix)))
    except OSError:
        return ""
    near = get_close_matches(path.name, names, n=1)
    return f"; did you mean {one_line(near[0], 300)}?" if near else ""


def _entry(script: Path, top: Path) -> str:
    if not script.is_relative_to(top):
        raise SettingsError(
            f"--script {one_line(script, 300)} is outside of --source-dir {one_line(top, 300)}, so it would not be "
            "sent; give a folder that contains it, or omit --source-dir."
        )
    return script.relative_to(top).as_posix()


def _why_not(name: str, top: Path, in_repository: bool, cwd: Path) -> str:
    is_there = not name.startswith("../") and (top / name).exists()
    return why_left_out(top, in_repository, cwd, name) if is_there else f"it is not in {one_line(top, 300)}"


def _left_out(what: str, reason: str) -> SettingsError:
    return SettingsError(f"{what} would not be sent: {reason}; change that, or give --source-dir.")


# ---- Its requirements


def _required_files(source: Source) -> list[str]:
    """The requirements file and those it includes with -r or -c, relative to the top; some may be missing."""
    names = [source.requirements] if source.requirements else []
    for name in names:  # grows inside the loop
        for line in lines_of(_text(source, name)):
            places = [place for place in files_in(line) if not place.startswith(("/", "$")) and "://" not in place]
            named = [posixpath.normpath(posixpath.join(posixpath.dirname(name), place)) for place in places]
            names += [one for one in named if one not in names]
    return names


def _text(source: Source, name: str) -> str:
    return text_of((source.top / name).read_bytes()) if name in source.files else ""


# ---- The module


def _check_module(module: str, source: Source) -> None:
    """Raise SettingsError unless `python -m MODULE` can find it in the working directory or in a requirement."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise SettingsError(
            f"--module {one_line(module, 300)}: write a module as after `python -m`: package.module; a file is given "
            "as --script."
        )
    path = "/".join(module.split("."))
    folder = "" if source.cwd == "." else f"{source.cwd}/"
    if not {f"{folder}{path}.py", f"{folder}{path}/__main__.py"}.isdisjoint(source.files):
        return
    if f"{folder}{path}/__init__.py" in source.files:
        raise SettingsError(f"--module {module} is a package without __main__.py; give the module in it.")
    if _is_required(module.split(".")[0], source):
        return
    raise SettingsError(
        f"--module {one_line(module, 300)}: there is no {path}.py in the source folder "
        f"{one_line(source.top / source.cwd, 300)}, and no package of that name in its "
        f"{REQUIREMENTS}; run this from the folder that has it, or give --source-dir."
    )


def _is_required(package: str, source: Source) -> bool:
    """Whether a requirement installs the package."""
    text = "\n".join(_text(source, name) for name in _required_files(source))
    found = re.findall(r"^[^\S\n]*([A-Za-z0-9][A-Za-z0-9._-]*)", text, re.MULTILINE)
    return package.lower() in {re.sub(r"[._-]+", "_", name).lower() for name in found}


def read_files(listing: Listing) -> tuple[Member, ...]:
    """Read the files.  Raises SettingsError for one that looks like a key or cannot be read.

    Files that have vanished since they were listed, such as an editor's copy, are left out.
    """
    for file in listing.files:  # before anything is read, as names are quicker
        check_name(file.name)
    members = tuple(_read(listing))
    # A file may have grown meanwhile.
    check_size(listing.top, [File(one.name, len(one.content), one.is_program) for one in members])
    return members


def _read(listing: Listing) -> Iterator[Member]:
    for file in listing.files:
        if file.link:
            yield Member(file.name, link=file.link)
            continue
        try:
            content = (listing.top / file.name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise unreadable(listing.top / file.name, error.strerror) from None
        check_text(file.name, content)
        yield Member(file.name, content, file.is_program)
