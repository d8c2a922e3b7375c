"""Fills the templates in infra/.  A name that is missing or unused is a bug and raises KeyError."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

# Lines that hold only a comment; not #! or #SBATCH.
COMMENT = re.compile(r"^ *#(?: .*)?\n", re.MULTILINE)
# One behind a command.  Never one with a quote: its # may stand within what is quoted.
TRAILING_COMMENT = re.compile(r"""(?<=\S) +# [^'"`\\]*$""")
MARK = re.compile(r"@([A-Z][A-Z0-9_]*)@")
# What YAML does not read: lines of comments, empty ones, and comments at the end of a line, two spaces after it.
YAML_COMMENT = re.compile(r"^ *(?:#.*)?\n|  # .*$", re.MULTILINE)
QUOTED_MARK = re.compile(f'"{MARK.pattern}"')


def fill(template: str, values: Mapping[str, str | Sequence[str]]) -> str:
    """infra/`template` with each @NAME@ replaced by its value, quoted for the shell.

    Comments on lines of their own are removed, and the other comments and the indentation of a .sh, as EC2 accepts
    16 KiB of user data at most.  A string becomes one word, a sequence one word per item.
    """
    text = COMMENT.sub("", _text(template, MARK, values))
    if template.endswith(".sh"):
        text = _shortened(text)
    return MARK.sub(lambda mark: _quoted(values[mark[1]]), text)


def _shortened(script: str) -> str:
    """The same script in fewer bytes.  Here-documents, which end with EOF, keep their lines."""
    lines, is_document = list[str](), False
    for line in script.splitlines():
        lines.append(line if is_document else TRAILING_COMMENT.sub("", line.lstrip(" ")))
        is_document = line.endswith("<<'EOF'") or (is_document and line != "EOF")
    return "\n".join([*lines, ""]) if script.endswith("\n") else "\n".join(lines)


def fill_yaml(template: str, values: Mapping[str, Any]) -> str:
    """infra/`template` with each "@NAME@", in its quotes, replaced by its value as JSON, which is YAML on one line.

    Comments are removed: CloudFormation takes 51,200 bytes at most.
    """
    text = YAML_COMMENT.sub("", _text(template, QUOTED_MARK, values))
    return QUOTED_MARK.sub(lambda mark: json.dumps(values[mark[1]], separators=(",", ":")), text)


def _text(template: str, mark: re.Pattern[str], values: Mapping[str, Any]) -> str:
    """infra/`template`, if it names exactly the keys of `values`."""
    text = files("infra").joinpath(template).read_text()
    wanted = set(mark.findall(text))
    if wanted != set(values):
        raise KeyError(f"{template}: missing {sorted(wanted - set(values))}, unused {sorted(set(values) - wanted)}")
    return text


def _quoted(value: str | Sequence[str]) -> str:
    return shlex.quote(value) if isinstance(value, str) else shlex.join(value)
