"""A receipt as one page of HTML that needs nothing else: infra/rehearse/ has its template, style and script."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined

from launch.core.drawing.charts import alt
from launch.core.drawing.picture import as_svg, data_uri
from launch.rehearse.receipt.charts import (
    by_number,
    charts,
    counted,
    fault_marks,
    own_table,
    phase_bars,
    replayed,
    seconds,
    state_bars,
    ticks,
    write_marks,
)
from launch.rehearse.receipt.facts import CONTENTS, Receipt, ReceiptNode
from launch.rehearse.recording import epoch_between
from trainer.files import write_atomically
from trainer.terminal import encodable

if TYPE_CHECKING:
    from launch.rehearse.recording import Epoch, Line

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
    """Writes the page into the folder with all other results; returns its path."""
    path = receipt.folder / NAME
    write_atomically(path, as_html(receipt))
    return path


def as_html(receipt: Receipt) -> str:
    """The whole page."""
    folder = files("infra").joinpath("rehearse")
    style, script = (folder.joinpath(f"receipt.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["seconds"] = seconds
    environment.filters["replayed"] = replayed
    template = environment.from_string(folder.joinpath("receipt.html.j2").read_text(encoding="utf-8"))
    lines, cut = shortened(receipt.lines)
    text = template.render(
        receipt=receipt,
        style=style,
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
        charts=[(chart.title, data_uri(as_svg(chart)), alt(chart)) for chart in charts(receipt.epochs)],
        epochs=by_number(receipt.epochs),
        own=own_table(receipt.epochs),
        rows=final_rows(receipt),
        requests=request_tables(receipt),
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
    changes = [change for change in receipt.changes if change.node == node.name]
    return {
        "began": round(node.began, 2),
        "ended": round(node.ended, 2),
        "changes": [
            [round(change.at, 2), change.state, "" if change.rank is None else str(change.rank), change.how]
            for change in changes
        ],
    }


# ---- requests and files


def request_tables(receipt: Receipt) -> list[tuple[str, list[tuple[str, int, int, str]]]]:
    """Writes and reads; each row: name, count by the launcher, count by the nodes, errors."""
    tables = []
    for title, is_write in (("writes", True), ("reads", False)):
        names = sorted({group.name for group in receipt.requests if group.is_write == is_write})
        if names:
            tables.append((title, [_request_row(receipt, name) for name in names]))
    return tables


def _request_row(receipt: Receipt, name: str) -> tuple[str, int, int, str]:
    groups = [group for group in receipt.requests if group.name == name]
    errors: Counter[str] = Counter()
    for group in groups:
        errors.update({str(status): count for status, count in group.errors.items()})
    by_launcher = sum(group.count for group in groups if group.by_launcher)
    by_nodes = sum(group.count for group in groups if not group.by_launcher)
    return name, by_launcher, by_nodes, counted(errors)


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
