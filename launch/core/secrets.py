"""--secret NAME=REFERENCE: where AWS keeps the value of an environment variable.  Never the value itself.  Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from launch.core.options import WordList, texts_or
from trainer.errors import SettingsError, one_line
from trainer.settings.hidden import VALUES, without_secrets

if TYPE_CHECKING:  # plans need the forecast, and --help does not
    from launch.core.plan import Fact

# infra/iam lets nodes and SageMaker jobs read names with this prefix.  Not TOOLKIT: Systems Manager reserves names that
# begin with aws.
PREFIX = "ddp-toolkit/"
# SageMaker passes references in environment variables, which have 512 characters at most.
_REFERENCE = re.compile(r"ssm:/[A-Za-z0-9_./-]{1,480}|secretsmanager:[A-Za-z0-9/_+=.@-]{1,480}")
# Variables that decide which programs run, where they search, and as which user.
_RESERVED = re.compile(r"(AWS|DDP|DOCKER|LD|PYTHON|SM)_.*|PYTHON[A-Z]*|BASH_ENV|ENV|HOME|IFS|PATH|SHELLOPTS|TMPDIR")


_FORM = "--secret: write NAME=ssm:/PARAMETER or NAME=secretsmanager:SECRET, separated by commas."


References = Annotated[WordList, BeforeValidator(partial(texts_or, sentence=_FORM))]  # the setting's type


def read_references(words: Iterable[str]) -> dict[str, str]:
    """{variable: reference}.  Raises SettingsError, which never repeats a value that was given by mistake."""
    found = dict[str, str]()
    for word in words:
        name, equals, reference = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise SettingsError(_FORM)
        if not _REFERENCE.fullmatch(reference):
            raise SettingsError(
                f"--secret {name}: give the place of the value, ssm:/PARAMETER or secretsmanager:SECRET, and never the "
                "value itself."
            )
        if _RESERVED.fullmatch(name):
            raise SettingsError(
                f"--secret {name}: the machine sets this variable itself; choose one that your program reads."
            )
        if name in found:
            raise SettingsError(f"--secret {name} is given twice; leave one out.")
        found[name] = reference
    return found


# Flags with a secret as their value: --api-key x, db.password=x.  Not --token alone, which has other meanings in
# language models.
_NAMED = re.compile(
    r"(^|[._-])(passw(or)?d|passphrase|(api|access|secret|account)[_-]?key|(auth|access|hub|bot)[_-]?token|client[_-]?secret)$",
    re.IGNORECASE,
)
# A switch, a variable, where it is, a placeholder.
_NO_VALUE = re.compile(
    r"|true|false|yes|no|on|off|[01]|none|null|env:.*|os\.environ.*|[${<*].*|%[sr(].*", re.IGNORECASE
)


def check_no_secret(settings: Mapping[str, Any]) -> None:
    """Raise SettingsError if a job's settings hold what looks like a secret; it is not repeated.

    Settings appear in plans, job folders and job descriptions, which more people can read than should know a secret.
    """
    for name, value in settings.items():
        named = _named_secret(value) if name == "script" else ""
        if name != "secret" and (named or any(VALUES.search(text) for text in _texts(value))):
            which = f", by the name of {one_line(without_secrets(named), 60)}" if named else ""
            raise SettingsError(
                f"--{name.replace('_', '-')} holds what looks like a secret{which}, which anyone who may read the "
                "job would see; store it in AWS and give --secret NAME=ssm:/ddp-toolkit/..., or leave it out."
            )


def _named_secret(words: Sequence[str]) -> str:
    """The name of a secret on a command line, as in --password x, --password=x or password=x; empty: none."""
    for word, following in pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        if not equals and word.startswith("-"):
            value = "" if following.startswith("-") else following
        if _NAMED.search(name.lstrip("-+")) and not _NO_VALUE.fullmatch(value):
            return name
    return ""


def _texts(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [text for one in value for text in _texts(one)]
    return [str(value)] if isinstance(value, (str, Path)) else []


def facts(words: Iterable[str]) -> "list[Fact]":
    """The plan's facts about the secrets; empty if there are none."""
    from launch.core.plan import Fact

    references = read_references(words)
    if not references:
        return []
    places = ", ".join(f"{name} from {reference}" for name, reference in references.items())
    return [Fact("secrets", references, f"{places}; read where the training runs")]


def beyond_the_policies(words: Iterable[str]) -> list[str]:
    """The references that infra/iam does not grant."""
    allowed = re.compile(rf"(ssm:/|secretsmanager:){PREFIX}")
    return [reference for reference in read_references(words).values() if not allowed.match(reference)]
