"""Folders in places where another user may have been first, such as among the temporary files of a machine."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from trainer.errors import SettingsError, one_line


def own_folder(name: str, *, danger: str, remedy: str) -> Path:
    """A folder in /tmp, or where temporary files are, that nobody else can write in; made if it is not there.

    danger: what others could do with it.  Raises SettingsError if others can write in it, or it cannot be made.
    """
    folder = temporary_folder(remedy) / f"aws-ddp-toolkit-{name}-{os.getuid()}"
    make_own(folder, danger=danger, remedy=remedy)
    return folder


def temporary_folder(remedy: str) -> Path:
    """Where temporary files are.  Raises SettingsError where none can be written."""
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise SettingsError(f"there is no folder in which temporary files can be written; {remedy}.") from error


def make_own(folder: Path, *, danger: str, remedy: str) -> None:
    """As own_folder, for a folder that a library names."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise SettingsError(f"cannot make {folder} ({error.strerror}); {remedy}.") from error
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise SettingsError(f"others can write in {folder}, and so {danger}; {remedy}.")


def anothers_settings(*names: str) -> str:
    """The first of a library's settings files in the current folder that another user made; "" if there is none.

    Libraries look for such files wherever a training starts, wait for a pipe in their place, and obey whoever wrote
    them.
    """
    with suppress(FileNotFoundError):  # the current folder has been deleted, and nothing is in it
        here = Path.cwd()
        return next((name for name in names if os.path.lexists(here / name) and is_anothers(here / name)), "")
    return ""


def anothers_repository(*starts: Path) -> str:
    """What would make git take a folder above one of `starts` for a repository, if another user made it; else "".

    git obeys no other user's, but it reads HEAD before it looks whose it is, and waits for a pipe in its place.  It
    follows links before it looks above a folder, where GitPython goes by the name.
    """
    ways = [way for start in starts for way in (start.resolve(), start.absolute())]
    return next(filter(None, map(_anothers_repository, ways)), "")


def _anothers_repository(start: Path) -> str:
    for folder in (start, *start.parents):
        for mark in (folder / ".git", folder / "HEAD"):  # the second where there is no work tree
            if os.path.lexists(mark) and is_anothers(mark):
                return str(mark)
        if os.path.lexists(folder / ".git"):  # git looks no further than one's own
            break
    return ""


def anothers_link(tree: Path, target: Path) -> Path | None:
    """A link of another user's where something in `tree` would go, were it moved into `target`.

    What goes through one to a folder, or in place of one, lands in that folder.
    """
    for top, folders, files in os.walk(tree):
        here = target / Path(top).relative_to(tree)
        for place in (here, *(here / name for name in (*folders, *files))):
            if place.is_symlink() and is_anothers(place):
                return place
    return None


def refuse_anothers_link(folder: Path, remedy: str) -> None:
    """Raises SettingsError for a link of another user's in place of a folder that is named by us and not by the user.

    What lies where it leads would be replaced or removed with this user's rights, such as another training of his.
    """
    if folder.is_symlink() and is_anothers(folder):
        place = one_line(folder, 300)
        raise SettingsError(f"{place} is a link that another user made, to wherever he likes; {remedy}.")


def is_anothers(folder: Path) -> bool:
    """Whether another user made `folder`, or the link of that name; not root, who can do anything.

    A user's files have another owner on some file systems, so what is made beside it tells whose this user's are.
    """
    mine = os.geteuid()
    with suppress(OSError):  # no room
        probe = Path(tempfile.mkdtemp(prefix=".whose.", dir=folder.parent))
        mine = probe.stat().st_uid
        probe.rmdir()
    return folder.lstat().st_uid not in (mine, 0)
