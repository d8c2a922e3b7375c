"""Whole numbers among options that a command line gives as text.  Pure."""

from collections.abc import Mapping
from typing import Any

from trainer.errors import SettingsError


def whole(options: Mapping[str, Any], name: str, default: int) -> int:
    """The option `name`, or the default where it is not given.  Raises SettingsError for anything below 1."""
    given = str(default if options.get(name) is None else options[name])
    if not given.isdecimal() or int(given) < 1:
        raise SettingsError(f"{name}: {given} must be a whole number of at least 1.")
    return int(given)
