"""How far a rehearsed training is, from what its ranks wrote to CloudWatch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from launch.rehearse.aws.account import Account
from trainer.contract import METRIC_PREFIX

VALUE = re.compile(r"(\S+)=(-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan))(?!\S)", re.IGNORECASE)


def metrics(lines: Iterable[str]) -> list[Mapping[str, float]]:
    """The epochs among the lines of a log, where mpirun may have put its mark before each."""
    found = [_values(line) for line in lines if METRIC_PREFIX in line]
    return [values for values in found if "epoch" in values]  # ranks that write at once may tear a line


def _values(line: str) -> dict[str, float]:
    return {name: float(value) for name, value in VALUE.findall(line.partition(METRIC_PREFIX)[2])}


def records(account: Account) -> list[Mapping[str, float]]:
    """All epochs that were trained, those of rank 0 in the order in which it told them."""
    found = [record for lines in account.logs().values() for record in metrics(lines)]
    return sorted(found, key=lambda record: record["epoch"])


def has_begun(account: Account) -> bool:
    """Whether some rank has said something; torch itself may warn before the ranks have met."""
    return any(not line.startswith("[W") for lines in account.logs().values() for line in lines)


def newest_epoch(account: Account) -> int:
    """The last epoch that was trained; 0 before the first."""
    return int(max((record["epoch"] for record in records(account)), default=0))
