"""How far a rehearsed training is, read from what its ranks logged to CloudWatch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from launch.rehearse.aws.account import Account
from trainer.contract import METRIC_PREFIX

VALUE = re.compile(r"(\S+)=(-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan))(?!\S)", re.IGNORECASE)


def metrics(lines: Iterable[str]) -> list[Mapping[str, float]]:
    """The epochs in the lines of a log, where mpirun may have put its mark before each line."""
    records = [_values(line) for line in lines if METRIC_PREFIX in line]
    return [values for values in records if "epoch" in values]  # ranks that write at once may tear a line


def _values(line: str) -> dict[str, float]:
    return {name: float(value) for name, value in VALUE.findall(line.partition(METRIC_PREFIX)[2])}


def has_begun(account: Account) -> bool:
    """Whether any rank has logged something; torch itself may warn before the ranks have met."""
    return any(not line.startswith("[W") for lines in account.logs().values() for line in lines)


def newest_epoch(account: Account) -> int:
    """The number of the last epoch that was trained; 0 before the first."""
    return max((int(values["epoch"]) for lines in account.logs().values() for values in metrics(lines)), default=0)
