"""How far a preparation is: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, Task
    from rich.text import Text

LINE_EVERY_S = 30.0

Count = Callable[[int], None]


@contextmanager
def shown(what: str, total: int, interactive: bool, say: Callable[[str], None]) -> Iterator[Count]:
    """Inside, the function that it gives is told of each of `total` that is done."""
    if not interactive:
        yield _Lines(what, total, say)
        return
    with _bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Speed(ProgressColumn):
        """Of a task; nothing until it is known."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Speed(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=60)


class _Lines:
    def __init__(self, what: str, total: int, say: Callable[[str], None]) -> None:
        self._what, self._total, self._say = what, total, say
        self._done, self._began = 0, time.monotonic()
        self._said_at = self._began

    def __call__(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._said_at >= LINE_EVERY_S:
            self._said_at = now
            rate = self._done / (now - self._began)
            left_s = (self._total - self._done) / max(rate, 1e-9)
            self._say(
                f"{self._what}: {self._done:,} of {self._total:,}, {rate:,.0f}/s, about {left_s / 60:.0f} min left"
            )
