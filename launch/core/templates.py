"""Fill the templates in infra/.  A missing or unused name is a bug and raises KeyError."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

# Lines that hold only a comment; not #! or #SBATCH.
COMMENT = re.compile(r"^ *#(?: .*)?\n", re.MULTILINE)
# A comment after a command; never one with a quote, as its # may be inside the quotes.
TRAILING_COMMENT = re.compile(r"""(?<=\S) +# [^'"`\\]*$""")
MARK = re.compile(r"@([A-Z][A-Z0-9_]*)@")
# What YAML ignores: comment lines, empty lines, and trailing comments after two spaces.
YAML_COMMENT = re.compile(r"^ *(?:#.*)?\n|  # .*$", re.MULTILINE)
QUOTED_MARK = re.compile(f'"{MARK.pattern}"')


def fill(template: str, values: Mapping[str, str | Sequence[str]]) -> str:
    """infra/`template` with each @NAME@ replaced by its value, quoted for the shell.

    Comment lines are removed, and of a .sh also trailing comments and indentation, as EC2 accepts at most 16 KiB of
    user data.  A string becomes one word, a sequence one word per item.
    """
    text = COMMENT.sub("", _text(template, MARK, values))
    if template.endswith(".sh"):
        text = _shortened(text)
    return MARK.sub(lambda mark: _quoted(values[mark[1]]), text)


def _shortened(script: str) -> str:
    """The same script in fewer bytes.  Here-documents, which end with EOF, are unchanged."""
    lines, is_document = list[str](), False
    for line in script.splitlines():
        lines.append(line if is_document else TRAILING_COMMENT.sub("", line.lstrip(" ")))
        is_document = line.endswith("<<'EOF'") or (is_document and line != "EOF")
    return "\n".join([*lines, ""]) if script.endswith("\n") else "\n".join(lines)


def fill_yaml(template: str, values: Mapping[str, Any]) -> str:
    """infra/`template` with each "@NAME@", in its quotes, replaced by its value as JSON, which is YAML on one line.

    Comments are removed: CloudFormation accepts at most 51,200 bytes.
    """
    text = YAML_COMMENT.sub("", _text(template, QUOTED_MARK, values))
    return QUOTED_MARK.sub(lambda mark: json.dumps(values[mark[1]], separators=(",", ":")), text)


def _text(template: str, mark: re.Pattern[str], values: Mapping[str, Any]) -> str:
    """Read infra/`template`.  Raises KeyError unless it names exactly the keys of `values`."""
    text = files("infra").joinpath(template).read_text()
    names = set(mark.findall(text))
    if names != set(values):
        raise KeyError(f"{template}: missing {sorted(names - set(values))}, unused {sorted(set(values) - names)}")
    return text


def _quoted(value: str | Sequence[str]) -> str:
    return shlex.quote(value) if isinstance(value, str) else shlex.join(value)
