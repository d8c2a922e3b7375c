"""Times as Slurm writes them.  Pure."""

import re

from trainer.errors import SettingsError

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
UNLIMITED = ("infinite", "UNLIMITED", "NOT_SET", "n/a")


def seconds_of(text: str) -> int | None:
    """'30', '30:00', '4:00:00', '1-12', '1-12:30', '1-12:30:00' -> seconds; None: no limit.

    One number is minutes, two are minutes and seconds, or hours and minutes after days.  Raises ValueError.
    """
    if text in UNLIMITED:
        return None
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(text)
    first, second, third = (int(match[name] or 0) for name in ("first", "second", "third"))
    if match["days"]:
        return int(match["days"]) * 86_400 + first * 3600 + second * 60 + third
    if match["third"]:
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
        raise SettingsError(
            f"--time {time}: a job needs a limit above 0, such as 4:00:00; at the limit it saves and requeues itself."
        )
    return seconds


def as_time(seconds: int) -> str:
    """9000 -> 2:30:00."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
