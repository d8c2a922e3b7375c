"""What carries a job's tag, told apart: what is wholly the toolkit's, and what only looks like it.  Pure.

Anybody who may tag can copy a tag, or write anything into one.  What is not wholly ours is shown and never touched.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from launch.core.names import JOB_TAG, foreign_tag, tag_values

Described = Mapping[str, Any]


@dataclass(frozen=True)
class Foreign:
    """A thing that carries a job's tag and is not the toolkit's.  tag: the one that is missing or wrong, KEY=VALUE."""

    kind: str
    id: str
    job: str
    tag: str

    @property
    def why(self) -> str:
        key, _, value = self.tag.partition("=")
        return f"not touched: its tag {key} is {value!a}" if value else f"not touched: it has no tag {key}"


def owned(kind: str, id_key: str, described: Iterable[Described]) -> tuple[list[Described], list[Foreign]]:
    """The rows of `described` that are the toolkit's, and what only looks like it."""
    ours, others = list[Described](), list[Foreign]()
    for row in described:
        values = tag_values(row)
        if tag := foreign_tag(values, has_deadline=True):
            others.append(Foreign(kind, row[id_key], values.get(JOB_TAG, ""), tag))
        else:
            ours.append(row)
    return ours, others
