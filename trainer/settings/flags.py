"""Settings models <-> command line and YAML: defaults < --config file < flags.

Several models can share one command line and one file; each takes the keys it declares.  Hyphens and
underscores are the same.  A boolean takes `--amp`, `--amp true` and `--no-amp`.  Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

from trainer.errors import SettingsError
from trainer.settings.argparser import as_text, flag, parser_for
from trainer.settings.completion import complete
from trainer.settings.registry import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

Models = Sequence[type["BaseModel"]]

# Settings that say the same as another, each in its own way: a default of the one is none where the other is given.
RIVALS = MappingProxyType({"batch_size": "global_batch_size"})

NONE: Mapping[str, Any] = MappingProxyType({})


# What a value must be, by the first word of pydantic's error type; ranges keep pydantic's own words.
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "text", "path": "a path"}


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
    parser = parser_for(models, prog, about, sections, defaults)
    complete(parser)
    given = vars(parser.parse_args(list(argv)))
    config_file = given.pop("config", None)
    values = read_yaml(Path(config_file), models) if config_file else {}
    return build(over(defaults, {**values, **given}), models)


def over(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`values`, and of `defaults` what they leave open."""
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
    """The settings in a YAML file, names spelt with underscores.  Raises SettingsError."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(f"--config {path}: {error.strerror}; check the path.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise SettingsError(f"--config {path} must hold `name: value` lines, such as `epochs: 5`.")
    values = {str(name).replace("-", "_"): value for name, value in content.items()}
    _refuse_unknown(values, models, f"setting {{!r}} in {path}")
    return values


def to_argv(settings: BaseModel) -> list[str]:
    """The flags that give `settings` again; defaults are left out."""
    argv: list[str] = []
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if value != field.default:
            argv += [flag(name), as_text(value)]
    return argv


def to_yaml(settings: BaseModel) -> str:
    """All settings as YAML that --config reads back."""
    import yaml

    text: str = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
    return text


def _refuse_unknown(values: Iterable[str], models: Models, what: str) -> None:
    known = [name for model in models for name in model.model_fields]
    for name in values:
        if name not in known:
            raise SettingsError(f"unknown {what.format(name)}{did_you_mean(name, known) or '.'}")


def _validated(model: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    from pydantic import ValidationError

    fields = model.model_fields
    values = {name: _read_none(value, fields[name]) for name, value in values.items()}
    # A None for a setting that has no such value means its default.
    values = {name: value for name, value in values.items() if value is not None or _allows_none(fields[name])}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentences(error))) from error


def _read_none(value: Any, field: FieldInfo) -> Any:
    """None for a word that stands for it: SageMaker writes an empty string, YAML users none or null.

    The word none stays where it is one of the setting's choices, such as --data-volume none.
    """
    if not isinstance(value, str) or value.lower() not in ("", "none", "null"):
        return value
    return value.lower() if value.lower() in get_args(field.annotation) else None


def _allows_none(field: FieldInfo) -> bool:
    return field.default is None or type(None) in get_args(field.annotation)


def _sentences(error: ValidationError) -> list[str]:
    """One sentence per wrong setting: what was given and what is allowed."""
    sentences = []
    for detail in error.errors():
        where = flag(str(detail["loc"][0])) if detail["loc"] else "settings"
        sentences.append(f"{where} {detail['input']}: {_problem(detail)}")
    return list(dict.fromkeys(sentences))


def _problem(detail: ErrorDetails) -> str:
    kind, message = detail["type"], detail["msg"]
    if kind == "value_error":
        return message.removeprefix("Value error, ") + "."
    if kind == "literal_error":
        choices = [choice.strip(" '") for choice in detail["ctx"]["expected"].replace(" or ", ",").split(",")]
        return f"must be {', '.join(choices)}{did_you_mean(str(detail['input']), choices) or '.'}"
    word, _, problem = kind.partition("_")
    wanted = _KINDS.get(word) if problem in ("parsing", "type", "from_float") else None
    return f"must be {wanted or message.removeprefix('Input should be ')}."
