"""The clock of the launchers, and durations in words."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True)
class Clock:
    """An injectable clock.  now: seconds since the epoch."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def utc(self) -> datetime:
        return datetime.fromtimestamp(self.now(), UTC)


def minute(when: datetime) -> str:
    """2026-11-20 10:15 UTC."""
    return f"{when:%Y-%m-%d %H:%M} UTC"


def duration(span: timedelta) -> str:
    """3 d 4 h, 3 h 20 min, 20 min or 40 s."""
    seconds = max(0, int(span.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
