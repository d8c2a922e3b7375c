"""How far a rehearsed training is, from what its ranks wrote to CloudWatch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from launch.rehearse.account import Account
from trainer.contract import METRIC_PREFIX


def metrics(lines: Iterable[str]) -> list[Mapping[str, float]]:
    """The epochs among the lines of a log."""
    return [_values(line) for line in lines if line.startswith(METRIC_PREFIX)]


def _values(line: str) -> dict[str, float]:
    pairs = (pair.partition("=") for pair in line.removeprefix(METRIC_PREFIX).split())
    return {name: float(value) for name, _, value in pairs}


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
