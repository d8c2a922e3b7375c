"""What a job has done when, as bars over the time from its start to its end or its time limit.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from launch.console.jobs import ACTIVE, Row
from launch.core.clock import duration


@dataclass(frozen=True)
class Bar:
    """A phase."""

    name: str
    began: float  # share of the whole time
    ended: float  # share of the whole time
    lasts: str


def timeline(row: Row, first_line: datetime | None, now: datetime) -> Sequence[Bar]:
    """The phases of a job, in their order.

    first_line: the time of its log's first line, when its training begins; None if that is not known.
    """
    if row.started is None:
        return ()
    is_active = row.status in ACTIVE
    until = now if is_active else row.ended or now
    marks = [("start up", row.started)] if first_line and row.started < first_line < until else []
    marks.append(("train", first_line if marks and first_line else row.started))
    if is_active and row.deadline and row.deadline > until:
        marks.append(("left until the time limit", until))
        until = row.deadline
    whole = until - row.started
    if not whole:
        return ()
    return [
        Bar(name, (began - row.started) / whole, (ended - row.started) / whole, duration(ended - began))
        for (name, began), (_, ended) in pairwise([*marks, ("", until)])
    ]
