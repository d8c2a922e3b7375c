"""The timeline of a receipt's page: what is where on it, in % of the whole time.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from launch.rehearse.receipt.facts import Receipt, ReceiptNode
from launch.rehearse.stage.scene import PHASES

NUMBER = 5.5  # %: width of a number in a circle on a phone
PHONE, SCREEN, CHARACTER = 320, 900, 7  # px: widths of a chart on a phone and on a screen, and of a letter
TICK_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


@dataclass(frozen=True)
class Bar:
    """A bar of the timeline.  x, width: in % of the whole time."""

    label: str
    began: float
    ended: float
    x: float
    width: float

    @property
    def fits(self) -> str:
        """Where the label fits into the bar: any (also on a phone), wide (on a screen), or nowhere (empty)."""
        needed = len(self.label) * CHARACTER + 8
        if self.width / 100 * PHONE >= needed:
            return "any"
        return "wide" if self.width / 100 * SCREEN >= needed else ""


@dataclass(frozen=True)
class FaultMark:
    """An injected fault on the timeline.  x, number_x: where its line and its number are, in % of the whole time."""

    at: float
    x: float
    number_x: float
    text: str


def percent(at: float, total: float) -> float:
    return round(100 * min(1.0, max(0.0, at / total)), 2) if total > 0 else 0.0


def bar(label: str, began: float, ended: float, total: float) -> Bar:
    x = percent(began, total)
    return Bar(label, began, ended, x, round(percent(ended, total) - x, 2))


def phase_bars(receipt: Receipt) -> list[Bar]:
    lengths = [receipt.seconds[name] for name in PHASES]
    starts = accumulate(lengths, initial=0.0)
    bars = [
        bar(name, start, start + length, receipt.total)
        for name, start, length in zip(PHASES, starts, lengths, strict=False)
    ]
    return [one for one in bars if one.ended > one.began]


def state_bars(receipt: Receipt, node: ReceiptNode) -> list[Bar]:
    """The states of a node, one after the other."""
    changes = [change for change in receipt.changes if change.node == node.name]
    firsts = [next(group) for _, group in groupby(changes, key=lambda change: change.state)]
    moments = [change.at for change in firsts] + [max(node.ended, changes[-1].at if changes else 0.0)]
    return [
        bar(change.state, began, ended, receipt.total)
        for change, (began, ended) in zip(firsts, pairwise(moments), strict=True)
        if not change.is_end
    ]


def write_marks(receipt: Receipt, by_launcher: bool) -> list[tuple[float, str]]:
    """Where on the timeline requests wrote something, in %, with their names; near ones share a mark."""
    places: dict[float, Counter[str]] = {}
    for group in receipt.requests_of(by_launcher=by_launcher, is_write=True):
        for at in group.at:
            place = round(percent(at, receipt.total) * 2) / 2
            places.setdefault(place, Counter())[group.name] += 1
    return [(place, counted(names)) for place, names in sorted(places.items())]


def fault_marks(receipt: Receipt) -> list[FaultMark]:
    """The faults that have a time.  A number stands beside the one before, never on it."""
    marks: list[FaultMark] = []
    for at, text in receipt.faults:
        if at is not None:
            x = percent(at, receipt.total)
            marks.append(FaultMark(at, x, max(x, marks[-1].number_x + NUMBER) if marks else x, text))
    return marks


def ticks(total: float) -> list[tuple[float, str]]:
    """At most seven round moments, with their places in %."""
    step = next((step for step in TICK_STEPS_S if total / step <= 6), TICK_STEPS_S[-1])
    return [(percent(at, total), seconds(at, 0)) for at in range(0, int(total) + 1, step)]


def seconds(value: float, places: int = 1) -> str:
    """2.5 s, or 3 min 20 s."""
    if value < 120:
        return f"{value:.{places}f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min" + (f" {rest} s" if rest else "")


def counted(names: Mapping[str, int]) -> str:
    """Such as: ec2:CreateTags, 2 x ec2:RunInstances."""
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names.items())
