"""Folders among the temporary files of a machine, where another user may have been first."""

import os
import stat
import tempfile
from pathlib import Path

from trainer.errors import SettingsError


def own_folder(name: str, *, danger: str, remedy: str) -> Path:
    """A folder in /tmp, or where temporary files are, that nobody else can write in; made if it is not there.

    danger: what others could do with it.  Raises SettingsError if others can write in it, or it cannot be made.
    """
    folder = Path(tempfile.gettempdir(), f"aws-ddp-toolkit-{name}-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise SettingsError(f"cannot make {folder} ({error.strerror}); {remedy}.") from error
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise SettingsError(f"others can write in {folder}, and so {danger}; {remedy}.")
    return folder
