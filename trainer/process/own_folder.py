"""A folder of this user's own among the temporary files of the machine."""

import os
import tempfile
from pathlib import Path

from trainer.errors import SettingsError


def own_folder(name: str, *, remedy: str) -> Path:
    """The folder for `name`, which only this user may read; made if it is not there.

    Raises SettingsError if it cannot be made.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"aws-ddp-toolkit-{name}-{os.getuid()}"
    except OSError as error:
        raise SettingsError(f"there is no folder in which temporary files can be written; {remedy}.") from error
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make {folder} ({error.strerror}); {remedy}.") from error
    return folder
