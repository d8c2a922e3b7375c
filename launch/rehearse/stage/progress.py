"""How far a rehearsed training is, read from what its ranks logged to CloudWatch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from launch.core.metrics import LARGEST
from launch.rehearse.aws.account import Account
from trainer.contract import METRIC_PREFIX

# From the beginning of a word alone: a long one would be tried from each of its letters.
VALUE = re.compile(r"(?<!\S)(\S+)=(-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan))(?!\S)", re.IGNORECASE)


def metrics(lines: Iterable[str]) -> list[Mapping[str, float]]:
    """The records in the lines of a log, where mpirun may have put its mark before each line.

    Where the first names an epoch, as our trainer's do, all must: ranks that write at once may tear a line.
    """
    said = [_values(line) for line in lines if METRIC_PREFIX in line]
    records: list[Mapping[str, float]] = [values for values in said if values]
    if records and "epoch" in records[0]:
        return [values for values in records if "epoch" in values]
    return records


def _values(line: str) -> dict[str, float]:
    """Without what nothing can count with, as everywhere: a loss of a script's may be NaN, and its epoch any number."""
    said = ((name, float(value)) for name, value in VALUE.findall(line.partition(METRIC_PREFIX)[2]))
    return {name: value for name, value in said if abs(value) < LARGEST}


def has_begun(account: Account) -> bool:
    """Whether any rank has logged something; torch itself may warn before the ranks have met."""
    return any(not line.startswith("[W") for lines in account.logs().values() for line in lines)


def newest_epoch(account: Account) -> int:
    """The number of the last epoch that was trained, of a script that names none that of its records; 0 before."""
    return max((_reached(metrics(lines)) for lines in account.logs().values()), default=0)


def _reached(records: Sequence[Mapping[str, float]]) -> int:
    epochs = [values["epoch"] for values in records if "epoch" in values]
    return int(max(epochs)) if epochs else len(records)
