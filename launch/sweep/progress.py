"""How long a sweep still takes, and the line on a terminal that says so."""

import os
from collections.abc import Mapping, Sequence
from statistics import median
from typing import IO

from launch.core.terminal import harmless

MOST_S = 1e12  # no timedelta holds much more


def left_s(
    expected_s: Mapping[str, float | None],
    to_begin: Sequence[str],
    took_s: Sequence[float],
    current: str = "",
    elapsed_s: float = 0.0,
    share: float = 0.0,
) -> float | None:
    """Seconds until the last run ends; None where nothing says how long a run takes.

    expected_s: by name, of the forecast; to_begin: runs that have not begun; took_s: of runs that ended.
    current: the run at work, with the time since it began and the share of its epochs that are done.
    """
    projected_s = elapsed_s / share if share > 0 else None
    typical_s = median(took_s) if took_s else projected_s
    durations = [_first_known(expected_s.get(name), typical_s) for name in to_begin]
    if current:
        whole_s = _first_known(projected_s, expected_s.get(current), typical_s)
        durations.append(None if whole_s is None else max(0.0, whole_s - elapsed_s))
    known = [duration for duration in durations if duration is not None]
    total_s = sum(known)
    return total_s if len(known) == len(durations) and total_s < MOST_S else None


def _first_known(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


class StatusLine:
    """One line at the bottom of a terminal, which is overwritten; nothing where the output is not a terminal."""

    def __init__(self, file: IO[str], env: Mapping[str, str]) -> None:
        self._file = file
        self._is_terminal = file.isatty() and env.get("TERM", "") not in ("", "dumb")

    def show(self, text: str) -> None:
        if self._is_terminal:
            width = os.get_terminal_size(self._file.fileno()).columns
            self._file.write(f"\r\x1b[K{harmless(text)[: max(0, width - 1)]}")
            self._file.flush()

    def clear(self) -> None:
        self.show("")
