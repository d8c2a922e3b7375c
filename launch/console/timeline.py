"""What a job has done when, as bars over the time from its start to its end or its time limit.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
    goes_on = row.status in ACTIVE
    until = now if goes_on else row.ended or now
    starts = [("train", row.started)]
    if first_line and row.started < first_line < until:
        starts = [("start up", row.started), ("train", first_line)]
    end = until
    if goes_on and row.deadline and row.deadline > until:
        starts, end = [*starts, ("left until the time limit", until)], row.deadline
    return _bars(starts, end)


def _bars(starts: Sequence[tuple[str, datetime]], end: datetime) -> Sequence[Bar]:
    first = starts[0][1]
    whole = max(end - first, timedelta(seconds=1))
    return [
        Bar(name, (began - first) / whole, (ended - first) / whole, duration(ended - began))
        for (name, began), (_, ended) in pairwise([*starts, ("", end)])
    ]
