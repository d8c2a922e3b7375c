"""How far a rehearsed training is, read from what its ranks logged to CloudWatch."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import islice

from launch.core.metrics import LARGEST
from launch.rehearse.aws.account import Account
from trainer.contract import METRIC_PREFIX

# From the beginning of a word alone: a long one would be tried from each of its letters.
VALUE = re.compile(r"(?<!\S)(\S+)=(-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan))(?!\S)", re.IGNORECASE)


class MetricLog:
    """The records in the lines of a log that grows, where mpirun may have put its mark before each line.

    Where the first names an epoch, as our trainer's do, all must: ranks that write at once may tear a line.
    """

    def __init__(self) -> None:
        self._seen, self._names_epochs = 0, False
        self._is_first = True
        self._told, self._newest = 0, 0  # records, and the last epoch that one of them names

    def new(self, lines: Sequence[str]) -> list[Mapping[str, float]]:
        """Those of lines that are new since the last call: to look at all each time would take hours of a long one."""
        said = [_values(line) for line in islice(lines, self._seen, None) if METRIC_PREFIX in line]
        self._seen = len(lines)
        records: list[Mapping[str, float]] = [values for values in said if values]
        if records and self._is_first:
            self._names_epochs, self._is_first = "epoch" in records[0], False
        if self._names_epochs:
            records = [values for values in records if "epoch" in values]
        self._told += len(records)
        self._newest = max(self._newest, _newest_in(records))
        return records

    @property
    def reached(self) -> int:
        """The number of the last epoch by now, of a script that names none that of its records; 0 before."""
        return self._newest or self._told


def metrics(lines: Sequence[str]) -> list[Mapping[str, float]]:
    """All records in the lines of a log."""
    return MetricLog().new(lines)


def _newest_in(records: Sequence[Mapping[str, float]]) -> int:
    return max((int(values["epoch"]) for values in records if "epoch" in values), default=0)


def _values(line: str) -> dict[str, float]:
    """Without what nothing can count with, as everywhere: a loss of a script's may be NaN, and its epoch any number."""
    said = ((name, float(value)) for name, value in VALUE.findall(line.partition(METRIC_PREFIX)[2]))
    return {name: value for name, value in said if abs(value) < LARGEST}


def has_begun(account: Account) -> bool:
    """Whether any rank has logged something; torch itself may warn before the ranks have met."""
    return any(not line.startswith("[W") for lines in account.logs().values() for line in lines)


def newest_epoch(account: Account, logs: MutableMapping[str, MetricLog] | None = None) -> int:
    """The last epoch that any rank has trained, as MetricLog counts it.  logs: of earlier calls, and of the next."""
    logs = {} if logs is None else logs
    for stream, lines in account.logs().items():
        logs.setdefault(stream, MetricLog()).new(lines)
    return max((log.reached for log in logs.values()), default=0)
