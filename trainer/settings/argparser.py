"""Argument parsers for settings models: flag names, --help, completion and errors.  Torch-free."""

from __future__ import annotations

import argparse
import os
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Union, get_args, get_origin

from trainer.errors import SettingsError, did_you_mean, one_line

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


STARTED_BY = "_ARGCOMPLETE"
ALL = "--help-all"  # for commands whose --help shows only the most common flags


def is_asked() -> bool:
    """Whether a shell has started this process to complete a line."""
    return STARTED_BY in os.environ


def typed_words() -> list[str]:
    """The words after the command on the line being completed, including the one being typed."""
    first = int(os.environ[STARTED_BY])
    words = os.environ.get("COMP_LINE", "").split()
    return words[first:]


def is_at_first_word() -> bool:
    """Whether the word being typed is the first after the command, and not a flag."""
    words, is_new = typed_words(), os.environ.get("COMP_LINE", "").endswith(" ")
    return not words or (len(words) == 1 and not is_new and not words[0].startswith("-"))


def skip_word() -> None:
    """Complete as if the first word after the command, a verb, were part of the command."""
    os.environ[STARTED_BY] = str(int(os.environ[STARTED_BY]) + 1)


def offer(names: Iterable[str]) -> None:
    """Complete the word being typed as one of `names`, and exit."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("name", choices=list(names))
    complete(parser)


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions and exit, if a shell asked for them; otherwise do nothing."""
    if is_asked():
        import argcomplete

        argcomplete.autocomplete(parser)


# The default in a description, which a backend may replace.
_OWN_DEFAULT = re.compile(r" \(default: [^()]*\)")

IS_PATH = "Path"  # in Annotated: marks a text that may be a path, such as an image or a URL in S3


def flag(name: str) -> str:
    """The flag of the setting `name`: batch_size -> --batch-size."""
    return "--" + name.replace("_", "-")


def setting(name: str) -> str:
    """The setting's name for a flag or key, with underscores for hyphens: batch-size -> batch_size."""
    return name.replace("-", "_")


def as_text(value: Any) -> str:
    """A setting's value in the form that follows its flag."""
    if isinstance(value, dict):
        return ",".join(f"{key}:{item}" for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return ",".join(str(item).removesuffix(".0") if isinstance(item, float) else str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


@dataclass(frozen=True)
class Help:
    """The text of --help, and which flags it shows."""

    prog: str
    about: str
    sections: Mapping[str, str]  # the first field under each heading -> the heading
    defaults: Mapping[str, Any] = field(default_factory=dict)  # other than the models' own
    # The fields that --help shows, by heading, while --help-all shows all; empty: --help shows all.
    first: Mapping[str, Sequence[str]] = field(default_factory=dict)


def parser_for(models: Sequence[type[BaseModel]], about: Help) -> _Parser:
    """A parser for the flags of `models`; its result has only the flags that were given, as text."""
    fields = {name: field for model in models for name, field in model.model_fields.items()}
    parser = _Parser(
        prog=about.prog,
        usage=f"{about.prog} [--name value ...]",
        description=about.about,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=lambda prog: _Help(prog, max_help_position=32),
    )
    parser.add_argument(ALL, action="help", help=f"show all {len(fields)} flags" if about.first else argparse.SUPPRESS)
    _add_version(parser)
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings; flags override it")
    for heading, names in about.first.items():
        group: Any = parser.add_argument_group(heading)
        for name in names:
            if name in fields:
                _add(group, name, fields.pop(name), about)
    group = parser
    for name in fields:
        if name in about.sections and not about.first:
            group = parser.add_argument_group(about.sections[name])
        _add(group, name, fields[name], about, is_shown=not about.first)
    return parser


def at_home(text: str) -> str:
    """Expand a leading ~ or ~user, which bash does not do in --flag=~/x.  Never fails."""
    return os.path.expanduser(text)  # noqa: PTH111


def home_path(path: str | Path) -> Path:
    """`path` with a leading ~ or ~user expanded."""
    return Path(at_home(str(path)))


def plain_parser(prog: str, about: str) -> argparse.ArgumentParser:
    """A parser for a command whose arguments are not settings."""
    parser = _PlainParser(prog=prog, description=about, allow_abbrev=False, formatter_class=_Help)
    _add_version(parser)
    return parser


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")


def version() -> str:
    """The toolkit's name and version, for --version."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return f"aws-ddp-toolkit {installed('aws-ddp-toolkit')}"
    except PackageNotFoundError:  # a checkout or a source bundle on the path, not installed
        return "aws-ddp-toolkit, not installed"


class _Version(argparse.Action):
    """Print the version, which is looked up only when needed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        print(version())
        parser.exit()


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help formatter that never breaks a line within a word, so that names with hyphens can be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


# How a command is written in --help -> how the user called it.
ALIASES: list[tuple[re.Pattern[str], str]] = []


class _Renamed(argparse.ArgumentParser):
    """Argument parser whose help shows commands as the user called them."""

    def format_help(self) -> str:
        return _renamed(super().format_help())


def _renamed(text: str) -> str:
    for written, shown in ALIASES:
        text = written.sub(shown, text)
    return text


class _PlainParser(_Renamed):
    """Argument parser with one-line errors, in which unusual file names, as matched by `*`, are escaped."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, _renamed(f"error: {one_line(message, 1000)}; see {self.prog} --help\n"))


class _Parser(_Renamed):
    """Argument parser that treats underscores as hyphens, and raises SettingsError instead of printing its usage.

    unsuggested: known flags that are not suggested for misspelt ones, because they do not work with the others.
    """

    unsuggested: Collection[str] = ()

    def error(self, message: str) -> NoReturn:
        name, _, problem = message.removeprefix("argument ").partition(": ")
        raise SettingsError(f"{name}: {problem}." if problem else f"{message}.")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args([_hyphenated(word) for word in args], namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            if not word.startswith("--"):
                raise SettingsError(f"unexpected word {word!r}; settings are given as --name value.")
            raise SettingsError(f"unknown flag {one_line(word)}{self._nearest(word)} See --help for all of them.")
        return found

    def _nearest(self, word: str) -> str:
        """A clause that suggests the flag nearest to `word`, compared without the leading hyphens."""
        options = [option for option in self._option_string_actions if option not in self.unsuggested]
        known = [option.removeprefix("--") for option in options if option.startswith("--")]
        clause = did_you_mean(word.removeprefix("--"), known)
        return clause.replace("'", "").replace("did you mean ", "did you mean --") or "."


def _hyphenated(word: str) -> str:
    """--batch_size=8 -> --batch-size=8; values are left alone."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word


def _add(group: Any, name: str, field: FieldInfo, about: Help, *, is_shown: bool = True) -> None:
    default = about.defaults.get(name, None if field.is_required() else field.default)
    text = help_of(field, default).replace("%", "%%") if is_shown else argparse.SUPPRESS
    kinds = kinds_of(field)
    if bool in kinds:
        metavar = "|".join(["BOOL", *choices_of(field)])
        group.add_argument(flag(name), nargs="?", const="true", metavar=metavar, help=text)
        off = flag("no_" + name)
        group.add_argument(off, dest=name, action="store_const", const="false", help=argparse.SUPPRESS)
    else:
        group.add_argument(flag(name), metavar=metavar_of(name, field), help=text)


def help_of(field: FieldInfo, value: Any) -> str:
    """The description of a setting, with its default `value`."""
    text = str(field.description)
    if value not in (None, (), ""):  # without a default, the description says what happens
        text = f"{_OWN_DEFAULT.sub('', text)} (default: {as_text(value)})"
    return text


def kinds_of(field: FieldInfo) -> tuple[Any, ...]:
    """The types of a setting: `bool | None` -> (bool, NoneType)."""
    kind = field.annotation
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def holds_paths(field: FieldInfo) -> bool:
    """Whether a setting is a path, a list of paths, or a text marked with IS_PATH."""
    return IS_PATH in str(kinds_of(field)) or IS_PATH in getattr(field, "metadata", ())


def choices_of(field: FieldInfo) -> list[str]:
    """The values of a setting that are known by name."""
    return [str(choice) for kind in kinds_of(field) if get_origin(kind) is Literal for choice in get_args(kind)]


def _own_metavar(field: FieldInfo) -> str:
    """The metavar that a field declares itself, or an empty string."""
    extra = field.json_schema_extra
    return str(extra.get("metavar", "")) if isinstance(extra, dict) else ""


# Words in a number's name -> its unit.
_UNITS = {
    "hours": "HOURS", "usd": "USD", "s": "SECONDS", "gb": "GB", "mb": "MB", "epochs": "EPOCHS", "batch_size": "BATCH",
    "image_size": "PIXELS",
}  # fmt: skip


def metavar_of(name: str, field: FieldInfo) -> str:
    """The placeholder for a value in --help: its choices, the unit of a number, or the last word of its name."""
    if own := _own_metavar(field):
        return own
    if choices := choices_of(field):
        return "|".join(choices)
    last, kind = name.rpartition("_")[2], str(kinds_of(field))
    if "int" in kind or "float" in kind:
        word = next((unit for words, unit in _UNITS.items() if f"_{words}_" in f"_{name}_"), "N")
    elif "Path" in kind:
        word = "FOLDER" if last == "dir" else "FILE"
    else:
        word = last.upper()
    return f"{word.removesuffix('S')},..." if "tuple" in kind else word
