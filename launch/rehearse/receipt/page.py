"""A receipt as one page of HTML that needs nothing else: infra/rehearse/ has its template, style and script."""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined

from launch.rehearse.receipt.facts import Node, Receipt
from launch.rehearse.stage.scene import PHASES
from trainer.contract import CHECKPOINTS, CURVES, METRICS, SETTINGS, WEIGHTS

if TYPE_CHECKING:
    from launch.rehearse.stage.recording import Epoch, Line

NAME = "receipt.html"
REPLAYED = {"epoch": "{:.0f}", "train_loss": "{:.4f}", "images_per_s": "{:,.0f}"}  # figures of an epoch
# Of the log: longer ones are cut, so that the page stays one that opens at once.
LOG_CHARACTERS, LINE_CHARACTERS, MARKUP = 100_000, 600, 60
FILES = 200  # shown at most
NUMBER = 5.5  # %: what a number in a circle takes on a telephone
NARROW, WIDE, CHARACTER = 320, 900, 7  # px: a chart's width on a telephone and on a screen, and of a letter
WHAT = {SETTINGS: "the training's settings", METRICS: "each epoch", CURVES: "loss and accuracy, as a picture",
        WEIGHTS: "the weights", CHECKPOINTS: "to go on from", "logs": "what the ranks said",
        "requests.jsonl": "every request", "job": "plan, cluster, exit records, boot logs"}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """From x on, width wide: both in % of the whole time.  fits: on a telephone, on a screen, or ''."""

    label: str
    began: float
    ended: float
    x: float
    width: float

    @property
    def fits(self) -> str:
        need = len(self.label) * CHARACTER + 8
        return next((name for name, px in (("any", NARROW), ("wide", WIDE)) if self.width / 100 * px >= need), "")


@dataclass(frozen=True)
class Chart:
    """One figure over the epochs, in a box of 460 x 210.  series: (css class, name, path, points with their text)."""

    title: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    series: Sequence[tuple[str, str, str, Sequence[tuple[float, float, str]]]]


def write(receipt: Receipt) -> Path:
    """Into the folder where everything else is kept."""
    path = receipt.kept / NAME
    path.write_text(as_html(receipt), encoding="utf-8")
    return path


def as_html(receipt: Receipt) -> str:
    """The whole page."""
    folder = files("infra").joinpath("rehearse")
    style, script = (folder.joinpath(f"receipt.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["seconds"] = seconds
    template = environment.from_string(folder.joinpath("receipt.html.j2").read_text(encoding="utf-8"))
    lines, cut = shortened(receipt.lines)
    return template.render(
        receipt=receipt,
        style=style,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        phases=phases(receipt),
        ticks=ticks(receipt.total),
        lives=[(node, states(receipt, node)) for node in receipt.nodes],
        writes=[(who, marks(receipt, by_launcher)) for who, by_launcher in (("launcher", True), ("nodes", False))],
        faults=faults(receipt),
        never=[what for at, what in receipt.faults if at is None],
        charts=charts(receipt.epochs),
        epochs=by_number(receipt.epochs),
        rows=at_the_end(receipt),
        requests=table_of_requests(receipt),
        lines=lines,
        cut=cut,
        kept=kept(receipt.files),
        record=record(receipt),
    )


# ---- the timeline


def percent(at: float, total: float) -> float:
    return round(100 * min(1.0, max(0.0, at / total)), 2) if total > 0 else 0.0


def bar(label: str, began: float, ended: float, total: float) -> Bar:
    x = percent(began, total)
    return Bar(label, began, ended, x, round(percent(ended, total) - x, 2))


def phases(receipt: Receipt) -> list[Bar]:
    spans = [receipt.seconds[name] for name in PHASES]
    starts = accumulate(spans, initial=0.0)
    return [
        bar(name, start, start + span, receipt.total)
        for name, start, span in zip(PHASES, starts, spans, strict=False)
        if span > 0
    ]


def states(receipt: Receipt, node: Node) -> list[Bar]:
    """What the node was, one state after the other."""
    changes = [change for change in receipt.changes if change.node == node.name]
    firsts = [next(group) for _, group in groupby(changes, key=lambda change: change.state)]
    moments = [change.at for change in firsts] + [max(node.ended, changes[-1].at if changes else 0.0)]
    return [
        bar(change.state, began, ended, receipt.total)
        for change, (began, ended) in zip(firsts, pairwise(moments), strict=True)
        if change.state != "off"
    ]


def marks(receipt: Receipt, by_launcher: bool) -> list[tuple[float, str]]:
    """Where requests wrote something: near ones together, each with its names."""
    asked = [
        (percent(at, receipt.total), one.name)
        for one in receipt.of_requests(by_launcher=by_launcher, wrote=True)
        for at in one.at
    ]
    places: dict[float, Counter[str]] = {}
    for place, name in sorted(asked):
        places.setdefault(round(place * 2) / 2, Counter())[name] += 1
    return [(place, ", ".join(_times(name, count) for name, count in names.items())) for place, names in places.items()]


def faults(receipt: Receipt) -> list[tuple[float, float, float, str]]:
    """When, where, where its number stands (beside the one before, not on it), and what."""
    found: list[tuple[float, float, float, str]] = []
    for at, what in receipt.faults:
        if at is not None:
            x = percent(at, receipt.total)
            found.append((at, x, max(x, found[-1][2] + NUMBER) if found else x, what))
    return found


def ticks(total: float) -> list[tuple[float, str]]:
    """At most seven moments, round ones, with their place in %."""
    step = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800) if total / s <= 6), 3600)
    return [(percent(at, total), seconds(at, 0)) for at in range(0, int(total) + 1, step)]


def seconds(value: float, places: int = 1) -> str:
    """2.5 s, or 3 min 20 s."""
    if value < 120:
        return f"{value:.{places}f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min" + (f" {rest} s" if rest else "")


# ---- loss and accuracy


def by_number(epochs: Sequence[Epoch]) -> list[Epoch]:
    """Each epoch once: one that was trained again after a fault, as it was at last."""
    return [epoch for _, epoch in sorted({epoch.number: epoch for epoch in epochs}.items())]


def charts(epochs: Sequence[Epoch]) -> list[Chart]:
    found = by_number(epochs)
    kinds = (("Loss", "loss", 1.0, "{:.4f}"), ("Accuracy, %", "top1", 100.0, "{:.1f}%"))
    return [chart(title, kind, factor, words, found) for title, kind, factor, words in kinds] if found else []


def chart(title: str, kind: str, factor: float, words: str, epochs: Sequence[Epoch]) -> Chart:
    left, right, top, bottom = 40.0, 450.0, 12.0, 184.0
    first, last = epochs[0].number, epochs[-1].number
    found = {
        name: [(e.number, e.values[f"{part}_{kind}"] * factor) for e in epochs if f"{part}_{kind}" in e.values]
        for name, part in (("training", "train"), ("test", "eval"))
    }
    values = [value for points in found.values() for _, value in points if math.isfinite(value)]
    y_ticks = scale(min(values, default=0.0), max(values, default=1.0))
    low, high = y_ticks[0], y_ticks[-1]

    def place(number: float, value: float) -> tuple[float, float]:
        x = (left + right) / 2 if first == last else left + (right - left) * (number - first) / (last - first)
        return round(x, 1), round(bottom - (bottom - top) * (value - low) / (high - low), 1)

    series = []
    for name, points in found.items():
        placed = [(*place(n, v), f"{name}, epoch {n}: {words.format(v)}") for n, v in points if math.isfinite(v)]
        path = "M" + "L".join(f"{x} {y}" for x, y, _ in placed) if placed else ""
        series.append((name, name, path, placed if len(placed) <= 40 else []))
    step = max(1, math.ceil((last - first) / 8))
    return Chart(
        title,
        [(place(n, low)[0], str(n)) for n in range(first, last + 1, step)],
        [(place(first, value)[1], f"{value:g}") for value in y_ticks],
        series,
    )


def scale(low: float, high: float) -> list[float]:
    """Round figures from below `low` to above `high`."""
    rough = max(high - low, abs(high) * 0.01, 1e-6) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


# ---- what was shown


def shortened(lines: Sequence[Line]) -> tuple[list[tuple[Line, str]], tuple[int, int]]:
    """The lines with their texts; and how many are left out in the middle of too many, and at which place."""
    shown = [(line, _clipped(line.text)) for line in lines]
    sizes = [len(text) + MARKUP for _, text in shown]
    if sum(sizes) <= LOG_CHARACTERS:
        return shown, (0, 0)
    head = sum(total <= LOG_CHARACTERS // 2 for total in accumulate(sizes))
    tail = sum(total <= LOG_CHARACTERS // 2 for total in accumulate(reversed(sizes)))
    return [*shown[:head], *shown[len(shown) - tail :]], (len(shown) - head - tail, head)


def _clipped(text: str) -> str:
    more = len(text) - LINE_CHARACTERS
    return text if more <= 0 else f"{text[:LINE_CHARACTERS]} … and {more:,} more characters"


def at_the_end(receipt: Receipt) -> list[tuple[Node, str, Epoch | None]]:
    """Each node with its last state and its last epoch."""
    newest = {change.node: change for change in receipt.changes}
    return [
        (
            node,
            newest[node.name].state if node.name in newest else "",
            next((e for e in reversed(receipt.epochs) if node.began <= e.at <= node.ended), None),
        )
        for node in receipt.nodes
    ]


def record(receipt: Receipt) -> Mapping[str, Any]:
    """For the replay: what changed when."""
    ended = {node.name: round(node.ended, 2) for node in receipt.nodes}
    return {
        "total": round(receipt.total, 2),
        "nodes": [
            {
                "began": round(node.began, 2),
                "ended": ended[node.name],
                "changes": [
                    [round(c.at, 2), c.state, "" if c.rank is None else str(c.rank), c.how]
                    for c in receipt.changes
                    if c.node == node.name
                ],
            }
            for node in receipt.nodes
        ],
        "epochs": [
            [round(e.at, 2), *(e.said(name, words) for name, words in REPLAYED.items())] for e in receipt.epochs
        ],
    }


# ---- requests and files


def table_of_requests(receipt: Receipt) -> list[tuple[str, list[tuple[str, int, int, str]]]]:
    """Those that wrote, and those that read: name, how often by the launcher and by the nodes, and the errors."""
    groups = []
    for title, wrote in (("wrote", True), ("read", False)):
        names = sorted({one.name for one in receipt.requests if one.wrote == wrote})
        groups.append((title, [_requests_of(receipt, name) for name in names]))
    return [group for group in groups if group[1]]


def _requests_of(receipt: Receipt, name: str) -> tuple[str, int, int, str]:
    these = [one for one in receipt.requests if one.name == name]
    errors = sum((Counter(one.errors) for one in these), Counter[int]())
    return (
        name,
        sum(one.count for one in these if one.by_launcher),
        sum(one.count for one in these if not one.by_launcher),
        ", ".join(_times(str(status), count) for status, count in sorted(errors.items())),
    )


def kept(sizes: Mapping[str, int]) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    """Path (quoted, and as it is), what it is, and size; first what most look for, then the rest under a title."""
    first = [path for path in sizes if not path.endswith(".sha256") and ("/" not in path or path.startswith("logs/"))]
    first.sort(key=lambda path: (path.count("/"), path))
    others = sorted(set(sizes) - set(first))
    title = f"{len(others)} more files" + (f", the first {FILES}" if len(others) > FILES else "")
    groups = [("", first[:FILES]), *([(title, others[:FILES])] if others else [])]
    return [
        (title, [(quote(path), path, WHAT.get(path.partition("/")[0], ""), _size(sizes[path])) for path in paths])
        for title, paths in groups
    ]


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _times(name: str, count: int) -> str:
    return name if count == 1 else f"{count} x {name}"
