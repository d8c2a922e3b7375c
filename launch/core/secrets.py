"""--secret NAME=REFERENCE: where AWS keeps the value of an environment variable.  No value ever comes here.  Pure."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator

from launch.core.options import WordList
from trainer.errors import SettingsError

# Of the names that infra/iam lets nodes and SageMaker's jobs read.  Not TOOLKIT: Systems Manager keeps names that begin
# with aws for itself.
PREFIX = "ddp-toolkit/"
# An environment variable that carries one, on SageMaker, has 512 characters at most.
_REFERENCE = re.compile(r"ssm:/[A-Za-z0-9_./-]{1,480}|secretsmanager:[A-Za-z0-9/_+=.@-]{1,480}")
# What decides which programs run, where they look and as whom.
_OURS = re.compile(r"(AWS|DDP|DOCKER|LD|PYTHON|SM)_.*|PYTHON[A-Z]*|BASH_ENV|ENV|HOME|IFS|PATH|SHELLOPTS|TMPDIR")


_FORM = "--secret: write it as NAME=ssm:/PARAMETER or NAME=secretsmanager:SECRET, with commas in between."


def _of_texts(value: Any) -> Any:
    """`value`, if it is a text or some.  Not left to the type, whose error would repeat what may be a secret."""
    if isinstance(value, str) or (isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)):
        return value
    raise SettingsError(_FORM)


References = Annotated[WordList, BeforeValidator(_of_texts)]  # the setting's type


def read_references(words: Iterable[str]) -> dict[str, str]:
    """{variable: reference}.  Raises SettingsError, which tells nothing that may be a value given by mistake."""
    found = dict[str, str]()
    for word in words:
        name, equals, reference = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise SettingsError(_FORM)
        if not _REFERENCE.fullmatch(reference):
            raise SettingsError(
                f"--secret {name}: after the = comes where the value is kept, ssm:/PARAMETER or secretsmanager:SECRET; "
                "never the value itself."
            )
        if _OURS.fullmatch(name):
            raise SettingsError(f"--secret {name}: this variable is the machine's own; take one of your program's.")
        if name in found:
            raise SettingsError(f"--secret {name} is given twice; leave one out.")
        found[name] = reference
    return found


def row(words: Iterable[str]) -> list[tuple[str, str]]:
    """What a plan says of them: nothing, if there are none."""
    said = ", ".join(f"{name} from {reference}" for name, reference in read_references(words).items())
    return [("secrets", f"{said}; read where the training runs")] if said else []


def beyond_the_policies(words: Iterable[str]) -> list[str]:
    """The references that infra/iam does not grant."""
    references = read_references(words).values()
    return [it for it in references if not re.match(rf"(ssm:/|secretsmanager:){PREFIX}", it)]
