"""Settings of a program that must start at once: a dataclass, read and checked as the others' pydantic models are.

pydantic takes longer to import than all else that such a program needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from trainer.errors import SettingsError, one_line
from trainer.settings import flags
from trainer.settings.argparser import flag, kinds_of
from trainer.settings.registry import did_you_mean


def described(description: str, *, least: float = -inf, most: float = inf) -> dict[str, Any]:
    """The metadata of a field that is a flag.  description: for --help; least, most: of a number."""
    return {"description": description, "least": least, "most": most}


@dataclass(frozen=True)
class _Setting:
    """A setting as trainer.settings asks for it, by pydantic's names."""

    annotation: Any
    default: Any
    description: str
    least: float
    most: float
    is_needed: bool
    json_schema_extra: None = None


def read(
    argv: Sequence[str], settings: type[Any], *, prog: str, about: str, sections: Mapping[str, str]
) -> dict[str, Any]:
    """The values on a command line, and in the file that it names, by their names in `settings`, a dataclass.

    Raises SettingsError; exits for --help.
    """
    known = _settings_of(settings)
    model = cast(Any, SimpleNamespace(model_fields=known))
    texts = flags.cleaned(flags.read(argv, [model], prog=prog, about=about, sections=sections), cast(Any, known))
    values = dict[str, Any]()
    wrong = [f"{flag(name)} is missing." for name, one in known.items() if one.is_needed and name not in texts]
    for name, text in texts.items():
        try:
            values[name] = None if text is None else _value(text, known[name])
        except ValueError as error:
            wrong.append(f"{flag(name)} {one_line(text)}: must be {error}")
    if wrong:
        raise SettingsError("\n".join(wrong))
    flags.check_sizes(values)
    return values


def _settings_of(settings: type[Any]) -> dict[str, _Setting]:
    """Those of a dataclass, by name."""
    kinds, found = get_type_hints(settings), dict[str, _Setting]()
    for one in fields(settings):
        if one.metadata:
            is_needed = one.default is MISSING
            default = "" if is_needed else one.default
            found[one.name] = _Setting(kinds[one.name], default, is_needed=is_needed, **one.metadata)
    return found


def _value(text: Any, setting: _Setting) -> Any:
    """What a text means, or a list of a YAML file.  Raises ValueError, which ends a sentence with what it must be."""
    kind = kinds_of(cast(Any, setting))[0]
    if get_origin(kind) is tuple:
        words = text.split(",") if isinstance(text, str) else text
        return tuple(str(word) for word in words if word)
    if not isinstance(text, str):
        raise ValueError("a single value.")
    if kind in (int, float):
        return _number(text, setting, kind)
    if get_origin(kind) is Literal:
        return _choice(text, get_args(kind))
    return Path(text) if kind is Path else text


def _choice(text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise ValueError(", ".join(choices) + (did_you_mean(one_line(text), choices) or "."))
    return text


def _number(text: Any, setting: _Setting, kind: type[int] | type[float]) -> int | float:
    try:
        number = kind(text)
    except ValueError:
        raise ValueError("a whole number." if kind is int else "a number.") from None
    if not setting.least <= number <= setting.most:  # what is no number is in no range
        upward = "" if setting.most == inf else f" and at most {setting.most:,}"
        raise ValueError(f"at least {setting.least:,}{upward}.")
    return number
