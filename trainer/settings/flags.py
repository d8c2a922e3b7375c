"""Settings models <-> command line and YAML: defaults < --config file < flags.

Several models can share one command line and one file; each uses the keys that it declares.  Hyphens and
underscores are equivalent.  A boolean takes `--amp`, `--amp true` and `--no-amp`.  Torch-free.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

from trainer.errors import SettingsError, did_you_mean, one_line
from trainer.settings.argparser import (
    ALL,
    Help,
    as_text,
    at_home,
    complete,
    flag,
    holds_paths,
    home_path,
    is_asked,
    kinds_of,
    parser_for,
)
from trainer.settings.yaml_file import read_mapping

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

Models = Sequence[type["BaseModel"]]

# Alternatives: if the second setting is given, defaults for the first are ignored.
RIVALS = MappingProxyType({"batch_size": "global_batch_size"})

NONE: Mapping[str, Any] = MappingProxyType({})


# Descriptions of types by the first word of pydantic's error type; for ranges pydantic's own message is used.
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "path": "a path",
    "tuple": "a list, such as a,b",
    "dict": "pairs, such as a:1,b:2",
}

# Larger integers are typing errors, and would overflow somewhere: float64 is exact up to here.
LARGEST = 2**53


def parse(
    argv: Sequence[str],
    models: Models,
    *,
    prog: str,
    about: str,
    sections: Mapping[str, str],
    defaults: Mapping[str, Any] = NONE,
) -> list[BaseModel]:
    """One instance of each of `models` from a command line.  Raises SettingsError; exits for --help.

    defaults: values for settings that are not given, where they differ from the models' own.
    """
    given = read(argv, models, prog=prog, about=about, sections=sections, defaults=defaults)
    return build(over(defaults, given), models)


def read(
    argv: Sequence[str],
    models: Models,
    *,
    prog: str,
    about: str,
    sections: Mapping[str, str],
    defaults: Mapping[str, Any] = NONE,
    unsuggested: Collection[str] = (),
) -> dict[str, Any]:
    """The settings given on a command line and in its file, by name, for build().  Like parse() otherwise.

    defaults: only shown in --help; unsuggested: names of settings that are not suggested for misspelt ones.
    """
    values = given(argv, models, Help(prog, about, sections, defaults), unsuggested)
    return with_file(values, models)


def given(argv: Sequence[str], models: Models, about: Help, unsuggested: Collection[str] = ()) -> dict[str, Any]:
    """The settings given on a command line.  Like read() without the file, whose path is returned as `config`."""
    if is_asked() or ALL in argv:
        about = replace(about, first={})
    parser = parser_for(models, about)
    parser.unsuggested = {flag(prefix + name) for name in unsuggested for prefix in ("", "no_")}
    complete(parser)
    values: dict[str, Any] = vars(parser.parse_args(list(argv)))
    return values


def with_file(given: Mapping[str, Any], models: Models) -> dict[str, Any]:
    """The settings in the file named by --config, if any, overridden by the flags `given`.  Raises SettingsError."""
    values = dict(given)
    file = values.pop("config", None)
    if file is None:
        return values
    if not file:
        raise SettingsError("--config needs the path of a YAML file.")
    return {**read_yaml(home_path(file), models), **values}


def over(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`defaults` overridden by `values`."""
    ruled_out = {name for name, rival in RIVALS.items() if values.get(name) is None and values.get(rival) is not None}
    return {**{name: value for name, value in defaults.items() if name not in ruled_out}, **values}


def build(values: Mapping[str, Any], models: Models) -> list[BaseModel]:
    """One instance of each of `models` from names and values.  Raises SettingsError naming each wrong one."""
    _refuse_unknown(values, models, "setting {!r}")
    settings, wrong = [], []
    for model in models:
        try:
            settings.append(_validated(model, {k: v for k, v in values.items() if k in model.model_fields}))
        except SettingsError as error:
            wrong.append(str(error))
    if wrong:
        raise SettingsError("\n".join(wrong))
    return settings


def read_yaml(path: Path, models: Models) -> dict[str, Any]:
    """The settings in a YAML file, as text by name, with underscores.  Raises SettingsError."""
    values = read_mapping(path)
    _refuse_unknown(values, models, f"setting {{!r}} in {path}")
    return values


def to_argv(settings: BaseModel) -> list[str]:
    """The flags that reproduce `settings`, without defaults."""
    argv: list[str] = []
    for name, value in _changed(settings).items():
        argv += [flag(name), as_text(value)]
    return argv


def _changed(settings: BaseModel) -> dict[str, Any]:
    """The settings that differ from their defaults; models with dependent defaults have their own `changed`."""
    changed: dict[str, Any] | None = getattr(settings, "changed", None)
    if changed is not None:
        return changed
    fields = type(settings).model_fields.items()
    return {name: getattr(settings, name) for name, field in fields if getattr(settings, name) != field.default}


def to_yaml(settings: BaseModel) -> str:
    """All settings as YAML that --config reads back."""
    import yaml

    text: str = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
    return text


def _refuse_unknown(values: Iterable[str], models: Models, what: str) -> None:
    known = [name for model in models for name in model.model_fields]
    for name in values:
        if name not in known:
            given = one_line(name)
            raise SettingsError(f"unknown {what.format(given)}{did_you_mean(given, known) or '.'}")


def _validated(model: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    from pydantic import ValidationError

    values = cleaned(values, model.model_fields)
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentences(error))) from error
    _refuse({name: getattr(settings, name) for name in values}, lambda _, value: _excess(value))
    return settings


def cleaned(values: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """`values` with words such as null replaced by None, and ~ in paths expanded.

    Raises SettingsError for values that no setting can have.
    """
    read = {name: _read_none(value, fields[name]) for name, value in values.items()}
    # For a setting that cannot be None, None means its default.
    kept = {name: value for name, value in read.items() if value is not None or _allows_none(fields[name])}
    _refuse(kept, lambda name, value: _misfit(value, kinds_of(fields[name])))
    return {name: _at_home(value, fields[name]) for name, value in kept.items()}


def _at_home(value: Any, field: FieldInfo) -> Any:
    """A setting's value, with ~ expanded if it is a path or a list of paths."""
    if not holds_paths(field) or str(value) == str(field.default):  # a default must not depend on the machine
        return value
    if isinstance(value, str) and "tuple" in str(kinds_of(field)):
        return ",".join(at_home(word.strip()) for word in value.split(","))
    if isinstance(value, (list, tuple)):
        return [_at_home(one, field) for one in value]
    return type(value)(at_home(str(value))) if isinstance(value, (str, Path)) else value


def _refuse(values: Mapping[str, Any], problem: Callable[[str, Any], str | None]) -> None:
    """Raise SettingsError naming each of `values` that has a problem."""
    found = {name: problem(name, value) for name, value in values.items()}
    wrong = [f"{flag(name)} {one_line(values[name])}: {says}." for name, says in found.items() if says]
    if wrong:
        raise SettingsError("\n".join(wrong))


def _misfit(value: Any, kinds: tuple[Any, ...]) -> str | None:
    """The problem with a value that pydantic would accept, or that would only fail in use; else None."""
    if isinstance(value, bool) and bool not in kinds and Any not in kinds:
        return "is a boolean, but this setting is not"  # pydantic would convert it to 1 or 0
    if isinstance(value, str) and not _is_writable(value):
        return "has a character that cannot be written to a file or log"
    return None


def _is_writable(text: str) -> bool:
    """Whether `text` could be part of a file name: no NUL, and no lone surrogates."""
    try:
        return "\0" not in text and bool(os.fsencode(text) or True)
    except UnicodeEncodeError:
        return False


def _excess(value: Any) -> str | None:
    """The problem with a number that is too large, else None."""
    return f"must be at most {LARGEST:,}" if isinstance(value, int) and abs(value) > LARGEST else None


def _read_none(value: Any, field: FieldInfo) -> Any:
    """`value`, or None for a word that means None: SageMaker writes an empty string, YAML users none or null.

    "none" is kept if it is one of the setting's choices, such as --data-volume none.
    """
    if not isinstance(value, str) or value.lower() not in ("", "none", "null"):
        return value
    return value.lower() if value.lower() in get_args(field.annotation) else None


def _allows_none(field: FieldInfo) -> bool:
    return field.default is None or type(None) in get_args(field.annotation)


def _sentences(error: ValidationError) -> list[str]:
    """One sentence per invalid setting: what was given and what is allowed."""
    sentences = []
    for detail in error.errors():
        if not detail["loc"]:  # from a validator of several settings, whose message names them
            sentences.append(_problem(detail))
            continue
        where = flag(str(detail["loc"][0]))
        if detail["type"] == "missing":
            sentences.append(f"{where} is missing.")
        else:
            sentences.append(f"{where} {one_line(detail['input'])}: {_problem(detail)}")
    return list(dict.fromkeys(sentences))


def _problem(detail: ErrorDetails) -> str:
    kind, message = detail["type"], detail["msg"]
    if kind == "value_error":
        return message.removeprefix("Value error, ") + "."
    if kind == "literal_error":
        choices = [choice.strip(" '") for choice in detail["ctx"]["expected"].replace(" or ", ",").split(",")]
        return f"must be {', '.join(choices)}{did_you_mean(one_line(detail['input']), choices) or '.'}"
    if kind == "int_parsing_size":
        return f"must be at most {LARGEST:,}."
    if kind == "string_pattern_mismatch":
        return f"must match {detail['ctx']['pattern']}."
    word, _, problem = kind.partition("_")
    expected = _KINDS.get(word) if problem in ("parsing", "type", "from_float") else None
    return f"must be {expected or message.removeprefix('Input should be ')}."
