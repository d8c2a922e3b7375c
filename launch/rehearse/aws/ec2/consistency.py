"""Eventual consistency: a request that names what was made a moment ago may be told that there is no such thing.

https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launch.rehearse.aws.gate import Asked, Check
from launch.rehearse.aws.refusal import Refusal

# How names of each kind begin -> AWS's code.  https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
UNKNOWN = {
    "i-": "InvalidInstanceID.NotFound",
    "sg-": "InvalidGroup.NotFound",
    "vol-": "InvalidVolume.NotFound",
    "": "InvalidPlacementGroup.Unknown",  # these have names of the user's own
}


def note(rules: Any, name: str) -> None:
    """Remembers a resource that has just been made."""
    if rules.slow.unknown:
        rules.fresh[name] = rules.slow.unknown


def check_of(rules: Any) -> Check:
    """The check of all requests to EC2 that name a resource.  Listings by filters are late in states.py."""

    def check(asked: Asked) -> Refusal | None:
        if asked.call.service != "ec2" or asked.call.operation.startswith("Create"):
            return None
        for name in _names(asked.call.params):
            if rules.fresh.get(name, 0) > 0:
                rules.fresh[name] -= 1
                code = next(code for start, code in UNKNOWN.items() if name.startswith(start))
                return Refusal(400, code, f"The ID '{name}' does not exist")
        return None

    return check


def _names(value: Any) -> Iterator[str]:
    """All texts in a request's parameters but tags."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in ("TagSpecifications", "Filters", "UserData"):
                yield from _names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)
