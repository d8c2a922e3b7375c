"""The type of a setting that is a list of words: a,b on the command line, a list in YAML."""

from typing import Annotated, Any

from pydantic import BeforeValidator


def split(value: Any) -> Any:
    """'a,b' -> ['a', 'b'], and 1 -> [1]; anything else is left to the field's own type."""
    if isinstance(value, int):
        return [value]
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(split)]
