"""One call to AWS, in AWS's own names.  Pure: launchers' tests and the embedded AWS both make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """One call to AWS.  params: as boto3 takes them."""

    service: str
    operation: str
    params: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.service}:{self.operation}"
