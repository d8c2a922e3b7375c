"""The timeline of a job's phases, for pages/macros.html.j2: bars and an axis, in % of the whole time."""

from collections.abc import Iterable
from dataclasses import dataclass

PHONE, SCREEN, CHARACTER = 320, 900, 7  # px: widths of a chart on a phone and on a screen, and of a letter
MINUTE, HOUR, DAY = 60, 3600, 86_400
TICK_STEPS_S = (
    1, 2, 5, 10, 20, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR,
    DAY, 2 * DAY, 5 * DAY,
)  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """A bar of the timeline."""

    label: str
    began: float  # s
    ended: float  # s
    x: float  # % of the whole time
    width: float  # % of the whole time

    @property
    def fits(self) -> str:
        """Where the label fits into the bar: any (also on a phone), wide (on a screen), or nowhere (empty)."""
        needed = len(self.label) * CHARACTER + 8
        if self.width / 100 * PHONE >= needed:
            return "any"
        return "wide" if self.width / 100 * SCREEN >= needed else ""


def percent(at: float, total: float) -> float:
    return round(100 * min(1.0, max(0.0, at / total)), 2) if total > 0 else 0.0


def bar(label: str, began: float, ended: float, total: float) -> Bar:
    x = percent(began, total)
    return Bar(label, began, ended, x, round(percent(ended, total) - x, 2))


def bars(spans: Iterable[tuple[str, float, float]], total: float) -> list[Bar]:
    """A bar for each name, began and ended; none for what took no time."""
    return [bar(name, began, ended, total) for name, began, ended in spans if ended > began]


def ticks(total: float) -> list[tuple[float, str]]:
    """At most seven round moments, with their places in %."""
    step = next((step for step in TICK_STEPS_S if total / step <= 6), TICK_STEPS_S[-1])
    return [(percent(at, total), seconds(at, 0)) for at in range(0, int(total) + 1, step)]


def seconds(value: float, places: int = 1) -> str:
    """2.5 s, 3 min 20 s, 4 h 10 min or 5 d 6 h."""
    if value < 2 * MINUTE:
        return f"{value:.{places}f} s"
    large, small, names = (MINUTE, 1, "min s")
    if value >= 3 * HOUR:
        large, small, names = (HOUR, MINUTE, "h min") if value < 2 * DAY else (DAY, HOUR, "d h")
    count, rest = divmod(round(value / small), large // small)
    first, second = names.split()
    return f"{count} {first}" + (f" {rest} {second}" if rest else "")
