"""Option types and models that several commands share."""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainer.errors import SettingsError
from trainer.settings.argparser import IS_PATH
from trainer.settings.hidden import is_secret


def split(value: Any) -> Any:
    """'a,b' -> ['a', 'b'], and 1 -> [1]; anything else is left for the field's type to check."""
    if isinstance(value, int):
        return [value]
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


def first_of(value: Any) -> Any:
    """The first of several values, as split() takes them; any other value as it is."""
    several = split(value)
    return several[0] if isinstance(several, list) and several else value


# a,b on the command line, a list in YAML.
WordList = Annotated[tuple[str, ...], BeforeValidator(split)]


Place = Annotated[str, IS_PATH]  # a path, in which ~ is the home folder, or an address


def texts_or(value: Any, sentence: str) -> Any:
    """`value`, a string or a list of strings.  pydantic's own error for others would repeat what may be a secret."""
    if isinstance(value, str) or (isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)):
        return value
    raise SettingsError(sentence)


# NAME=VALUE,NAME=VALUE, or a list.
OF_PAIRS = "write it as KEY=VALUE,KEY=VALUE, or as a list of such strings."
Pairs = Annotated[WordList, BeforeValidator(partial(texts_or, sentence=OF_PAIRS))]


class Options(BaseModel):
    """Options of a command: frozen, without unknown names and infinite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


# Of every command that makes a plan.
DryRun = bool | Literal["full", "json"]
DRY_RUN = Field(
    False,
    description="print the plan and do nothing; =full with every request, =json for programs; exits with the code of "
    "the first problem other than a missing account, or 0",
)


ANYWAY = Field(False, description="start a training that is not expected to fit into the GPUs' memory")
NEW = Field(False, description="start another job although an equal one runs, which is otherwise followed")


class RegionOptions(Options):
    """Options of every verb that calls AWS."""

    region: str | None = Field(None, description="AWS region (default: from your AWS configuration)")


def whole(options: Mapping[str, Any], name: str, default: int) -> int:
    """The option `name`, or the default where it is not given.  Raises SettingsError for anything below 1."""
    given = str(default if options.get(name) is None else options[name])
    if not given.isdecimal() or int(given) < 1:
        raise SettingsError(f"{name}: {given} must be a whole number of at least 1.")
    return int(given)


def read_variables(option: str, words: Iterable[str]) -> dict[str, str]:
    """{variable: value} for environment variables.  Raises SettingsError, which never repeats what may be a secret."""
    pairs = read_pairs(option, words)
    for name in pairs:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise SettingsError(f"{option}: names have letters, digits and _, and no digit at the start.")
        if is_secret(name, pairs[name]):
            raise SettingsError(
                f"{option} {name} looks like a secret, and anyone who can describe the job would see it; "
                f"store it in AWS and give --secret {name}=ssm:/ddp-toolkit/..., or leave it out."
            )
    return pairs


def read_pairs(option: str, words: Iterable[str]) -> dict[str, str]:
    """{key: value}.  Raises SettingsError."""
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            # The word is not repeated: without a name it may be a secret given by mistake.
            raise SettingsError(f"{option}: write it as KEY=VALUE,KEY=VALUE.")
        pairs[key] = value
    return pairs
