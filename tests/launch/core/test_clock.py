"""Time as it is written."""

from datetime import UTC, datetime, timedelta

import pytest

from launch.core.clock import Clock, duration


def test_the_time_of_a_clock_is_utc() -> None:
    assert Clock(now=lambda: 86_400.0).utc() == datetime(1970, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h 0 min"),
     (12_000, "3 h 20 min"), (86_400 * 3 + 4 * 3600, "3 d 4 h")],
)  # fmt: skip
def test_a_time_span_is_written_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text
