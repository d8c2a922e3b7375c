"""Folders in places where another user may have been first, such as among the temporary files of a machine."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from trainer.errors import SettingsError


def own_folder(name: str, *, danger: str, remedy: str) -> Path:
    """A folder in /tmp, or where temporary files are, that nobody else can write in; made if it is not there.

    danger: what others could do with it.  Raises SettingsError if others can write in it, or it cannot be made.
    """
    folder = Path(tempfile.gettempdir(), f"aws-ddp-toolkit-{name}-{os.getuid()}")
    make_own(folder, danger=danger, remedy=remedy)
    return folder


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
    here = Path.cwd()
    return next((name for name in names if os.path.lexists(here / name) and is_anothers(here / name)), "")


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
