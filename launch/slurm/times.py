"""Times as Slurm writes them.  Pure."""

import re

from trainer.errors import SettingsError

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
UNLIMITED = ("infinite", "UNLIMITED", "NOT_SET", "n/a")


def seconds_of(text: str) -> int | None:
    """'30', '30:00', '4:00:00', '1-12', '1-12:30', '1-12:30:00' -> seconds; None: no limit.

    A number alone is of minutes, and two are minutes and seconds, but hours and minutes after days.  Raises ValueError.
    """
    if text in UNLIMITED:
        return None
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError(text)
    first, second, third = (int(found[name] or 0) for name in ("first", "second", "third"))
    if found["days"]:
        return int(found["days"]) * 86_400 + first * 3600 + second * 60 + third
    if found["third"]:
        return first * 3600 + second * 60 + third
    return first * 60 + second


def limit_s(time: str) -> int:
    """--time in seconds.  Raises SettingsError."""
    try:
        seconds = seconds_of(time)
    except ValueError as error:
        raise SettingsError(
            f"--time {time}: write minutes, H:MM:SS, D-H or D-HH:MM:SS, such as 4:00:00 or 1-12."
        ) from error
    if not seconds:
        raise SettingsError(f"--time {time}: a job needs a limit above 0, such as 4:00:00; it goes on after it.")
    return seconds
