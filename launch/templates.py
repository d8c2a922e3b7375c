"""Fills the templates in infra/.  A name that is missing, or given and not used, is a bug and raises KeyError."""

import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files

MARK = re.compile(r"@([A-Z][A-Z0-9_]*)@")


def fill(template: str, values: Mapping[str, str | Sequence[str]]) -> str:
    """infra/`template` with each @NAME@ replaced by its value, quoted for the shell.

    A text becomes one word, a sequence as many words as it has items.
    """
    text = files("infra").joinpath(template).read_text()
    wanted = set(MARK.findall(text))
    if wanted != set(values):
        raise KeyError(f"{template}: missing {sorted(wanted - set(values))}, unused {sorted(set(values) - wanted)}")
    return MARK.sub(lambda mark: _quoted(values[mark[1]]), text)


def _quoted(value: str | Sequence[str]) -> str:
    return shlex.quote(value) if isinstance(value, str) else shlex.join(value)
