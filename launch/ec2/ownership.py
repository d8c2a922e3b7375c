"""What carries a job's tag, told apart: what is wholly the toolkit's, and what only looks like it.  Pure.

Anybody who may tag can copy a tag, or write anything into one.  What is not wholly ours is shown and never touched.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from launch.core.names import JOB_TAG, OWNER_TAG, foreign_tag, tag_values

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


def disputed(tags: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """The jobs whose things, all with all of our tags, have several owners, or some of them one and some none."""
    owners: dict[str, set[str]] = {}
    for values in tags:
        owners.setdefault(values[JOB_TAG], set()).add(values.get(OWNER_TAG, ""))
    return frozenset(job for job, known in owners.items() if len(known) > 1)


def of_others(kind: str, id_key: str, row: Described, me: str, mine: Collection[str]) -> Foreign | None:
    """The thing of `row`, if its owner is another than `me`, or nobody, and its job one of `mine`."""
    values = tag_values(row)
    owner = values.get(OWNER_TAG, "")
    if owner == me or values[JOB_TAG] not in mine:
        return None
    return Foreign(kind, row[id_key], values[JOB_TAG], f"{OWNER_TAG}={owner}")
