"""The user's own defaults for every job and backend, in ~/.config/aws-ddp-toolkit/config.yaml."""

import os
from pathlib import Path
from typing import Any

from launch.core.options import first_of
from trainer.settings.argparser import home_path

# Of the settings in the file, those that verbs such as status take: where they look for a job.
OF_VERBS = ("region", "bucket")


def path() -> Path:
    """Where the file is: https://specifications.freedesktop.org/basedir-spec/latest/ ."""
    # Read here, as launchers, verbs and tools alike take their defaults from it.
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if Path(folder).is_absolute() else home_path("~/.config")) / "aws-ddp-toolkit/config.yaml"


def read() -> dict[str, Any]:
    """What the file sets, by name; empty without one.  Raises SettingsError."""
    if not path().is_file():
        return {}
    from trainer.settings.yaml_file import read_mapping  # --help does not need it

    return read_mapping(path(), name=str(path()))


def for_verb(fields: Any) -> dict[str, Any]:
    """The defaults of a verb with these options; of several regions the first, where it takes one."""
    usual = {name: value for name, value in read().items() if name in OF_VERBS and name in fields}
    if "region" in usual and fields["region"].annotation == str | None:
        usual["region"] = first_of(usual["region"])
    return usual
