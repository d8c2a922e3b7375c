"""A receipt as one page of HTML that needs nothing else: infra/rehearse/ has its template, style and script."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from launch.core.drawing.curves import learning
from launch.core.drawing.timeline import Bar, bar, bars, percent, ticks
from launch.core.metrics import AXES, is_of_script, merged, metrics_of, shown
from launch.core.pages import BASE, asset, environment, pictures
from launch.rehearse.backend import PHASES
from launch.rehearse.receipt.facts import CONTENTS, Receipt, ReceiptNode
from launch.rehearse.recording import epoch_between
from trainer.files import write_atomically
from trainer.terminal import encodable

if TYPE_CHECKING:
    from launch.rehearse.aws.server import Request
    from launch.rehearse.recording import Epoch, Line


REPLAYED = {"epoch": "{:.0f}", "train_loss": "{:.4f}", "images_per_s": "{:,.0f}"}  # figures of an epoch
MAX_ROWS = 200  # of a script


def by_number(epochs: Sequence[Epoch]) -> list[Epoch]:
    """Each epoch once: the last record of one that was trained again after a fault."""
    return [epoch for _, epoch in sorted({epoch.number: epoch for epoch in epochs}.items())]


def own_table(epochs: Sequence[Epoch]) -> tuple[list[str], list[list[str]]] | None:
    """The columns and the newest rows of a script's metrics; None where the records are our trainer's."""
    records = merged(epoch.values for epoch in epochs)
    if not is_of_script(records):
        return None
    columns = [*(axis for axis in AXES if any(axis in record for record in records)), *metrics_of(records)]
    return columns, [[shown(record.get(name)) for name in columns] for record in records[-MAX_ROWS:]]


def replayed(epoch: Epoch) -> list[str]:
    """An epoch's figures for the replay: its number, loss and images per second; empty where there are none."""
    if epoch.is_ours:
        return [epoch.formatted(name, template) for name, template in REPLAYED.items()]
    return [str(epoch.number), epoch.formatted("loss", "{:.4g}"), ""]


# ---- the timeline


NUMBER = 5.5  # %: width of a number in a circle on a phone


@dataclass(frozen=True)
class FaultMark:
    """An injected fault on the timeline."""

    at: float
    x: float  # of its line, in % of the whole time
    number_x: float  # of its number, in %
    text: str


def phase_bars(receipt: Receipt) -> list[Bar]:
    lengths = [receipt.seconds[name] for name in PHASES]
    starts = accumulate(lengths, initial=0.0)
    spans = ((name, start, start + length) for name, start, length in zip(PHASES, starts, lengths, strict=False))
    return bars(spans, receipt.total)


def state_bars(receipt: Receipt, node: ReceiptNode) -> list[Bar]:
    """The states of a node, one after the other."""
    changes = receipt.changes_of(node)
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
    for request in receipt.requests:
        if request.is_write and request.by_launcher == by_launcher:
            place = round(percent(request.at, receipt.total) * 2) / 2
            places.setdefault(place, Counter())[request.name] += 1
    return [(place, counted(names)) for place, names in sorted(places.items())]


def fault_marks(receipt: Receipt) -> list[FaultMark]:
    """The faults that have a time.  Their numbers never overlap."""
    marks: list[FaultMark] = []
    for at, text in receipt.faults:
        if at is not None:
            x = percent(at, receipt.total)
            marks.append(FaultMark(at, x, max(x, marks[-1].number_x + NUMBER) if marks else x, text))
    return marks


def counted(names: Mapping[str, int]) -> str:
    """Such as: ec2:CreateTags, 2 x ec2:RunInstances."""
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names.items())


NAME = "receipt.html"
# Limits on the log, so that the page opens at once.  MARKUP: bytes of HTML around each line.
LOG_CHARACTERS, LINE_CHARACTERS, MARKUP = 100_000, 600, 60
MAX_FILES = 200


@dataclass(frozen=True)
class FileRow:
    """A file of the run folder."""

    href: str  # its path, quoted for a link
    path: str
    about: str
    size: str


def write(receipt: Receipt) -> Path:
    """Write the page into the folder with all other results; return its path."""
    path = receipt.folder / NAME
    write_atomically(path, as_html(receipt))
    return path


def as_html(receipt: Receipt) -> str:
    """The whole page."""
    script = asset("rehearse/receipt.js")
    template = environment(replayed=replayed).get_template("rehearse/receipt.html.j2")
    lines, cut = shortened(receipt.lines)
    text = template.render(
        receipt=receipt,
        style=asset(BASE) + asset("rehearse/receipt.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        phases=phase_bars(receipt),
        ticks=ticks(receipt.total),
        node_bars=[(node, state_bars(receipt, node)) for node in receipt.nodes],
        writes=[
            (who, write_marks(receipt, by_launcher)) for who, by_launcher in (("launcher", True), ("nodes", False))
        ],
        faults=fault_marks(receipt),
        other_faults=[text for at, text in receipt.faults if at is None],
        pictures=pictures(learning([epoch.values for epoch in receipt.epochs])),
        epochs=by_number(receipt.epochs),
        own=own_table(receipt.epochs),
        rows=final_rows(receipt),
        requests=request_tables(receipt.requests),
        lines=lines,
        cut=cut,
        files=file_tables(receipt.files),
        record=record(receipt),
    )
    return encodable(text)


# ---- the log


def shortened(lines: Sequence[Line]) -> tuple[list[tuple[Line, str]], tuple[int, int]]:
    """The lines with their texts; and, where there are too many, how many are left out and after which one."""
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


def final_rows(receipt: Receipt) -> list[tuple[ReceiptNode, str, Epoch | None]]:
    """Each node with its last state and its last epoch."""
    states = {change.node: change.state for change in receipt.changes}
    return [
        (node, states.get(node.name, ""), epoch_between(node.began, node.ended, receipt.epochs))
        for node in receipt.nodes
    ]


def record(receipt: Receipt) -> Mapping[str, Any]:
    """For the replay: what changed when."""
    return {
        "total": round(receipt.total, 2),
        "nodes": [_node_record(receipt, node) for node in receipt.nodes],
        "epochs": [[round(epoch.at, 2), *replayed(epoch)] for epoch in receipt.epochs],
    }


def _node_record(receipt: Receipt, node: ReceiptNode) -> Mapping[str, Any]:
    return {
        "began": round(node.began, 2),
        "ended": round(node.ended, 2),
        "changes": [
            [round(change.at, 2), change.state, "" if change.rank is None else str(change.rank), change.how]
            for change in receipt.changes_of(node)
        ],
    }


# ---- requests and files


def request_tables(requests: Sequence[Request]) -> list[tuple[str, list[tuple[str, int, int, str]]]]:
    """Writes and reads; each row: name, count by the launcher, count by the nodes, errors."""
    by_name: dict[str, list[Request]] = {}
    for request in requests:
        by_name.setdefault(request.name, []).append(request)
    tables = []
    for title, is_write in (("writes", True), ("reads", False)):
        rows = [_request_row(name, row) for name, row in sorted(by_name.items()) if row[0].is_write == is_write]
        tables += [(title, rows)] if rows else []
    return tables


def _request_row(name: str, requests: Sequence[Request]) -> tuple[str, int, int, str]:
    by_launcher = sum(request.by_launcher for request in requests)
    errors = Counter(str(status) for status in sorted(request.status for request in requests) if status >= 400)
    return name, by_launcher, len(requests) - by_launcher, counted(errors)


def file_tables(sizes: Mapping[str, int]) -> list[tuple[str, list[FileRow]]]:
    """The main files, without a title; then the rest, under one."""
    main = [path for path in sizes if not path.endswith(".sha256") and ("/" not in path or path.startswith("logs/"))]
    main.sort(key=lambda path: (path.count("/"), path))
    others = sorted(set(sizes) - set(main))
    tables = [("", [_file_row(path, sizes[path]) for path in main[:MAX_FILES]])]
    if others:
        title = f"{len(others)} more files" + (f", the first {MAX_FILES}" if len(others) > MAX_FILES else "")
        tables.append((title, [_file_row(path, sizes[path]) for path in others[:MAX_FILES]]))
    return tables


def _file_row(path: str, size: int) -> FileRow:
    return FileRow(quote(os.fsencode(path)), path, CONTENTS.get(path.partition("/")[0], ""), _size(size))


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
