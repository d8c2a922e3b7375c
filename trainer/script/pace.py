"""pace.json: a script's progress and speed, computed from the metrics it prints.  Torch-free.

Launchers use it to estimate the remaining time of a job, and the duration of a similar one.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from trainer.files import write_atomically

# Pairs of metrics: the count done, and the total.  The first pair that is present is used.
COUNTED = (("epoch", "epochs"), ("step", "steps"))
PROGRESS = "progress"  # from 0 to 1; preferred to COUNTED
# The share of a training that must be measured before estimating the rest.
LEAST = 0.01
LARGEST = 1e12  # seconds
_WRITE_EVERY_S = 10.0


@dataclass(frozen=True)
class Pace:
    """Progress of a training.

    done: share of the training, from 0 to 1; since: the first share reported since the last start, `seconds` earlier;
    at: when `done` was reported, as time.time().
    """

    done: float
    since: float
    seconds: float
    at: float

    @property
    def rest_s(self) -> float | None:
        """Estimated seconds from `at` to the end; None if too little was measured."""
        gained = self.done - self.since
        return None if gained < LEAST else (1 - self.done) * self.seconds / gained


def parse(text: bytes | None) -> Pace | None:
    """The content of a pace.json; None if it is missing or invalid, as any script may write it."""
    try:
        content: Any = json.loads(text or b"")
        values = {field.name: content[field.name] for field in fields(Pace)}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if any(type(value) not in (int, float) for value in values.values()):
        return None
    pace = Pace(**values)
    fits = 0 <= pace.since <= pace.done <= 1 and 0 <= pace.seconds < LARGEST and 0 <= pace.at < LARGEST
    return pace if fits else None


def share_done(values: Mapping[str, Any]) -> float | None:
    """The share of a training that is done, from the newest value of each metric; None if unknown."""
    share = _number(values.get(PROGRESS))
    if share is not None and 0 <= share <= 1:
        return share
    for done, of in COUNTED:
        count, total = _number(values.get(done)), _number(values.get(of))
        if count is not None and total is not None and total > 0 and count >= 0:
            return min(1.0, count / total)
    return None


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) and math.isfinite(value) else None


class PaceFile:
    """Update pace.json from metrics, at most every 10 s.  Write errors are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values = dict[str, Any]()
        self._first: tuple[float, float] | None = None
        self._pace: Pace | None = None
        self._written: Pace | None = None

    def note(self, record: Mapping[str, Any], now: float) -> None:
        """Process the next record of metrics.  now: time.time()."""
        self._values |= record
        done = share_done(self._values)
        if done is None:
            return
        if self._first is None or done < self._first[0]:
            self._first = (done, now)
        self._pace = Pace(done, self._first[0], max(0.0, now - self._first[1]), now)
        if self._written is None or now - self._written.at >= _WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the newest progress, unless it is already written."""
        if self._pace is None or self._pace == self._written:
            return
        self._written = self._pace
        with suppress(OSError):
            write_atomically(self._path, json.dumps(asdict(self._pace)) + "\n")
