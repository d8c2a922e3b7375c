"""Readers of YAML files with names and values.  Torch-free.

Values in a settings file are read as text, like those of flags, and converted to the type of the setting.  YAML's own
types would turn `epochs: yes` into 1, `max_steps: 1:30` into 90 and `run_dir: 2026-02-30` into an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.errors import SettingsError, one_line
from trainer.settings.argparser import setting

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_YAML = "tag:yaml.org,2002:"
_TEXT, _MERGE, _DATE = f"{_YAML}str", f"{_YAML}merge", f"{_YAML}timestamp"
# The only YAML types in a settings file besides text, by first letter, as PyYAML looks them up.
_NULL = (f"{_YAML}null", re.compile(r"^(~|null|Null|NULL|)$"))
_FEW = {**{first: [_NULL] for first in ("", *"~nN")}, "<": [(_MERGE, re.compile(r"^<<$"))]}


def read_mapping(path: Path, name: str = "") -> dict[str, Any]:
    """The names and values in the settings file `path`: text, None, and lists and dicts of them.

    Names are returned with underscores.  Duplicate names are errors; anchors and `<<` work.
    name: of the file, in messages (default: --config PATH).  Raises SettingsError.
    """
    return _read(path, name or f"--config {path}", _FEW)


def read_typed(path: Path | Traversable) -> dict[str, Any]:
    """Like read_mapping(), but with YAML's numbers and booleans, for files other than settings; dates stay text."""
    from yaml import SafeLoader

    usual = SafeLoader.yaml_implicit_resolvers
    return _read(path, str(path), {first: [one for one in kinds if one[0] != _DATE] for first, kinds in usual.items()})


def _read(path: Path | Traversable, name: str, resolvers: Any) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.load(path.read_bytes().decode(), _loader(name, resolvers))  # noqa: S506  # a SafeLoader
    except OSError as error:
        raise SettingsError(f"{name}: {error.strerror}; check the path.") from error
    except RecursionError as error:
        sentence = f"{name} is nested too deeply; write `name: value` lines, such as `epochs: 5`."
        raise SettingsError(sentence) from error
    except (yaml.YAMLError, ValueError, LookupError, ArithmeticError) as error:  # `!!bool maybe`, a float of 400 hours
        raise SettingsError(f"{name} is not YAML: {one_line(error, 300)}") from error
    if not isinstance(content, dict):
        raise SettingsError(f"{name} must hold `name: value` lines, such as `epochs: 5`.")
    return {setting(key): value for key, value in content.items()}


def _loader(name: str, resolvers: Any) -> Any:
    """A subclass of PyYAML's SafeLoader that rejects duplicate names.  name: of the file, in messages."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = resolvers

        def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
            """Read names as text, and raise SettingsError for a duplicate."""
            node = super().compose_mapping_node(anchor)
            lines = dict[str, int]()
            for key, _ in node.value:
                if key.id != "scalar" or key.tag == _MERGE:
                    continue
                key.tag, word, line = _TEXT, setting(key.value), key.start_mark.line + 1
                if word in lines:
                    both = f"lines {lines[word]} and {line}"
                    raise SettingsError(f"{name}: {one_line(word)} is set twice, in {both}; keep one.")
                lines[word] = line
            return node

    return Loader
