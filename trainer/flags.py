"""Settings models <-> command line and YAML: defaults < --config file < flags.

Several models can share one command line and one file; each takes the keys it declares.  Hyphens and
underscores are the same.  A boolean takes `--amp`, `--amp true` and `--no-amp`.  Torch-free.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trainer.errors import SettingsError
from trainer.registry import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo

Models = Sequence[type["BaseModel"]]


def parse(
    argv: Sequence[str], models: Models, *, prog: str, about: str, sections: Mapping[str, str]
) -> list[BaseModel]:
    """One instance of each of `models` from a command line.  Raises SettingsError; exits for --help."""
    parser = _parser(models, prog, about, sections)
    given = vars(parser.parse_args([_normalised(word) for word in argv]))
    config_file = given.pop("config", None)
    values = read_yaml(Path(config_file), models) if config_file else {}
    return build(values | given, models)


def build(values: Mapping[str, Any], models: Models) -> list[BaseModel]:
    """One instance of each of `models` from names and values.  Raises SettingsError naming each wrong one."""
    _refuse_unknown(values, models, "setting {!r}")
    return [_validated(model, {k: v for k, v in values.items() if k in model.model_fields}) for model in models]


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
            argv += [f"--{name.replace('_', '-')}", _as_text(value)]
    return argv


def to_yaml(settings: BaseModel) -> str:
    """All settings as YAML that --config reads back."""
    import yaml

    text: str = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
    return text


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{item}" for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return ",".join(f"{item:g}" for item in value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


class _Parser(argparse.ArgumentParser):
    """argparse that raises SettingsError instead of printing usage and exiting."""

    def error(self, message: str) -> NoReturn:
        name, _, problem = message.removeprefix("argument ").partition(": ")
        raise SettingsError(f"{name}: {problem}." if problem else f"{message}.")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [name.removeprefix("--") for name in self._option_string_actions if name.startswith("--")]
            word = unknown[0].partition("=")[0]
            if not word.startswith("--"):
                raise SettingsError(f"unexpected word {word!r}; settings are given as --name value.")
            near = did_you_mean(word.removeprefix("--"), known).replace("'", "--", 1).replace("'", "")
            raise SettingsError(f"unknown flag {word}{near or '.'} See --help for all of them.")
        return found


def _normalised(word: str) -> str:
    """--batch_size=8 -> --batch-size=8; values are left alone."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word


def _parser(models: Models, prog: str, about: str, sections: Mapping[str, str]) -> _Parser:
    parser = _Parser(prog=prog, description=about, allow_abbrev=False, argument_default=argparse.SUPPRESS,
                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings; flags win over it")
    group: Any = parser
    for model in models:
        for name, field in model.model_fields.items():
            if name in sections:
                group = parser.add_argument_group(sections[name])
            _add(group, name, field)
    return parser


def _add(group: Any, name: str, field: FieldInfo) -> None:
    flag = "--" + name.replace("_", "-")
    default = "none" if field.default in (None, ()) else _as_text(field.default)
    text = f"{field.description} [{default}]".replace("%", "%%")
    if _is_boolean(field):
        group.add_argument(flag, nargs="?", const="true", metavar="BOOL", help=text)
        group.add_argument(f"--no-{name.replace('_', '-')}", dest=name, action="store_const", const="false",
                           help=argparse.SUPPRESS)  # fmt: skip
    else:
        group.add_argument(flag, metavar=_metavar(field), help=text)


def _is_boolean(field: FieldInfo) -> bool:
    return "bool" in str(field.annotation).replace("<class '", "").replace("'>", "").split(" | ")


def _metavar(field: FieldInfo) -> str:
    kind = str(field.annotation)
    if "Literal" in kind:
        return "|".join(field.annotation.__args__)  # type: ignore[union-attr]
    for word, shown in (("Path", "PATH"), ("dict", "E:N,..."), ("tuple", "N,..."), ("float", "N"), ("int", "N")):
        if word in kind:
            return shown
    return "NAME"


def _refuse_unknown(values: Iterable[str], models: Models, what: str) -> None:
    known = [name for model in models for name in model.model_fields]
    for name in values:
        if name not in known:
            raise SettingsError(f"unknown {what.format(name)}{did_you_mean(name, known) or '.'}")


def _validated(model: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    from pydantic import ValidationError

    # SageMaker writes None as an empty string, and YAML users write none.
    values = {k: None if isinstance(v, str) and v.lower() in ("", "none", "null") else v for k, v in values.items()}
    # A None for a setting that has no such value means its default.
    values = {k: v for k, v in values.items() if v is not None or _allows_none(model.model_fields[k])}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentences(error))) from error


def _allows_none(field: FieldInfo) -> bool:
    return "None" in str(field.annotation) or field.default is None


def _sentences(error: ValidationError) -> list[str]:
    """One sentence per wrong setting: what was given and what is allowed."""
    sentences = []
    for detail in error.errors():
        flag = "--" + str(detail["loc"][0]).replace("_", "-") if detail["loc"] else "settings"
        given, problem = detail["input"], detail["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        near = ""
        if detail["type"] == "literal_error":
            choices = [c.strip(" '") for c in detail["ctx"]["expected"].replace(" or ", ",").split(",")]
            near = did_you_mean(str(given), choices)
        sentences.append(f"{flag} {given}: must be {problem}{near or '.'}".replace("be a valid", "be a"))
    return list(dict.fromkeys(sentences))


def fail(error: SettingsError) -> NoReturn:
    """Prints the sentence and exits with the code for wrong settings."""
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.code)
