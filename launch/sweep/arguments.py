"""A script's own arguments in a sweep: `args.lr: 0.1` is --lr=0.1 on its command line.  Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.errors import SettingsError, one_line

PREFIX = "args."
# --lr or -l as it is written, lr= for programs that take lr=0.1, and lr for --lr.
NAME = r"(--?)?[A-Za-z_][\w.-]*=?"

Values = Mapping[str, Any]


def is_argument(name: str) -> bool:
    return name.startswith(PREFIX)


def named(values: Values) -> dict[str, Any]:
    """The arguments among a sweep's `values`, by their own names.  Raises SettingsError for what is no name."""
    found = {name.removeprefix(PREFIX): value for name, value in values.items() if is_argument(name)}
    for name in found:
        if not re.fullmatch(NAME, name):
            raise SettingsError(
                f"{one_line(PREFIX + name)} names no argument; write args.lr for --lr, args.-l for -l, or args.lr= for "
                "lr=."
            )
    return found


def command_line(fixed: Sequence[str], values: Values) -> tuple[str, ...]:
    """The script's arguments.  fixed: words for every run; values: of named().

    Raises SettingsError where both give one, and for a value that no command line has.
    """
    words = list(fixed)
    for name, value in values.items():
        flag = _flag(name)
        if any(_gives(word, flag) for word in fixed):
            raise SettingsError(
                f"{PREFIX}{name} and args: {' '.join(fixed)} both give the script {flag.rstrip('=')}; leave one of "
                "them out."
            )
        words += _words(name, flag, value)
    return tuple(words)


def _flag(name: str) -> str:
    """lr -> --lr; what has hyphens in front or = behind stays."""
    return name if name.startswith("-") or name.endswith("=") else f"--{name}"


def _gives(word: str, flag: str) -> bool:
    """Whether a word of the fixed arguments is that flag; argparse and others take - and _ for different."""
    return word.startswith(flag) if flag.endswith("=") else word.partition("=")[0] == flag


def _words(name: str, flag: str, value: Any) -> list[str]:
    """The words that give `value`: a flag alone for true, none for false and null, several for a list."""
    if isinstance(value, dict):
        raise SettingsError(f"{PREFIX}{name}: {value} is no argument; give a text, a number, true, false or a list.")
    if flag.endswith("="):
        return [f"{flag}{_text(value)}"]
    if value is None or isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, (list, tuple)):
        return [flag, *map(_text, value)]
    return [flag, _text(value)] if re.fullmatch(r"-\w", flag) else [f"{flag}={_text(value)}"]


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return ",".join(map(_text, value)) if isinstance(value, (list, tuple)) else str(value)
