"""Files in YAML: names with values.  Torch-free.

Those of a settings file are read as the text that a flag would have been given.  The setting decides what it means:
YAML's own guesses would turn `epochs: yes` into 1, `max_steps: 1:30` into 90 and `run_dir: 2026-02-30` into an error.
So `yes` is a boolean only where one is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.errors import SettingsError, one_line
from trainer.settings.argparser import setting

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_YAML = "tag:yaml.org,2002:"
_NULL, _TEXT, _MERGE, _DATE = f"{_YAML}null", f"{_YAML}str", f"{_YAML}merge", f"{_YAML}timestamp"
_TAGS = (_NULL, _TEXT, _MERGE, f"{_YAML}seq", f"{_YAML}map")
_NUMBERS = (f"{_YAML}int", f"{_YAML}float", f"{_YAML}bool")


def read_mapping(path: Path, name: str = "") -> dict[str, Any]:
    """The names and values in the settings file `path`: text, None, and lists and dicts of them.

    Names come with underscores.  A name that is given twice is refused; anchors and `<<` work.
    name: of the file, in sentences (default: --config PATH).  Raises SettingsError.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Only empty values and `<<` are more than text."""

        yaml_implicit_resolvers: ClassVar = {  # type: ignore[misc]  # PyYAML looks there
            "": [(_NULL, re.compile(r"^$"))],
            **{first: [(_NULL, re.compile(r"^(~|null|Null|NULL)$"))] for first in "~nN"},
            "<": [(_MERGE, re.compile(r"^<<$"))],
        }

    return _read(path, Loader, _Reader(name or f"--config {path}"))


def read_typed(path: Path | Traversable) -> dict[str, Any]:
    """As read_mapping, for what is no settings file: numbers and booleans are those that YAML sees, dates are text."""
    import yaml

    return _read(path, yaml.SafeLoader, _TypedReader(str(path)))


def _read(path: Path | Traversable, loader: Any, reader: _Reader) -> dict[str, Any]:
    try:
        root = _composed(path, loader, reader.name)
        content = None if root is None else reader.value(root)
    except RecursionError as error:
        raise _too_deep(reader.name) from error
    if not isinstance(content, dict):
        raise SettingsError(f"{reader.name} must hold `name: value` lines, such as `epochs: 5`.")
    return content


def _composed(path: Path | Traversable, loader: Any, name: str) -> Any:
    """The root of a file's yaml.Nodes; None for an empty file."""
    import yaml

    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{name}: {error.strerror}; check the path.") from error
    try:
        return yaml.compose(data.decode(), Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name} is not YAML: {one_line(error, 300)}") from error


class _Reader:
    """Turns nodes into values.  name: of the file, in sentences."""

    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, node: Any, depth: int = 0) -> Any:
        """Text or None for a scalar; a list or a dict for the others."""
        if node.id == "scalar":
            return None if node.tag == _NULL else self._scalar(node)
        self._check_tag(node)
        if node.id == "sequence":
            return [self.value(item, depth + 1) for item in node.value]
        return self._mapping(node, depth)

    def _scalar(self, node: Any) -> Any:
        self._check_tag(node)
        return node.value

    def _check_tag(self, node: Any) -> None:
        if node.tag not in _TAGS:
            raise self._refused(node, f"has the tag {one_line(node.tag.replace(_YAML, '!!'))}; write the value alone")

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, item in node.value:
            if key.tag == _MERGE:
                for source in self._merged(item, depth):
                    merged = {**source, **merged}
                continue
            if key.id != "scalar":
                raise self._refused(key, "has a list for a name; write `name: value`")
            name = setting(key.value) if depth == 0 else key.value
            if name in own:
                lines_of_both = f"lines {lines[name]} and {_line(key)}"
                raise SettingsError(f"{self.name}: {one_line(name)} is set twice, in {lines_of_both}; keep one.")
            own[name], lines[name] = self.value(item, depth + 1), _line(key)
        return {**merged, **own}

    def _merged(self, node: Any, depth: int) -> Iterator[dict[str, Any]]:
        for source in node.value if node.id == "sequence" else [node]:
            if source.id != "mapping":
                raise self._refused(source, "merges (<<) what has no names; give an anchor of names and values")
            yield self.value(source, depth)

    def _refused(self, node: Any, problem: str) -> SettingsError:
        return SettingsError(f"{self.name}: line {_line(node)} {problem}.")


class _TypedReader(_Reader):
    """With YAML's own numbers and booleans."""

    def _scalar(self, node: Any) -> Any:
        from yaml.constructor import SafeConstructor

        if node.tag not in _NUMBERS:
            return node.value if node.tag == _DATE else super()._scalar(node)
        try:
            return SafeConstructor().construct_object(node)
        except (ValueError, LookupError, ArithmeticError) as error:  # `!!bool maybe`, `!!int ""`, a float of 400 hours
            raise self._refused(node, f"has the number {one_line(node.value, 40)}, which cannot be read") from error


def _line(node: Any) -> int:
    line: int = node.start_mark.line + 1
    return line


def _too_deep(name: str) -> SettingsError:
    return SettingsError(f"{name} is nested too deeply; write `name: value` lines, such as `epochs: 5`.")
