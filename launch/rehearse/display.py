"""Display of a running rehearsal: its lines and, on a terminal, a live table of the nodes below them."""

from __future__ import annotations

import io
import math
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launch.core.terminal import GAP, harmless, narrowed, one_row
from launch.rehearse.backend import RehearsedBackend
from launch.rehearse.recording import Change, Epoch, Line, Recorder, epoch_between

COLUMNS = ("node", "state", "rank", "epoch", "loss", "images/s", "address", "time", "end")
DROPPED_FIRST = ("end", "address", "time", "images/s", "loss")  # where the terminal is narrow
SHORT_NAME = 10  # of an instance ID: i- and 8 of 17 digits
REFRESH_S = 0.5
# Colours of the terminal's own palette, which suits its background.
STATE_STYLES = {"boots": "yellow", "trains": "green", "uploads": "cyan", "off": "dim"}

Row = tuple[str, ...]


class _Output(io.TextIOBase):
    """Standard output that never fails: behind `| head` the job continues, and the receipt is a file too."""

    def write(self, text: str) -> int:
        try:
            return sys.stdout.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            sys.stdout = io.StringIO()  # otherwise Python reports the error again at exit


def console_for(env: Mapping[str, str], is_terminal: bool) -> Console:
    """The console of a user with this environment: rich reads TERM, COLUMNS and LINES in it."""
    return Console(
        file=cast(IO[str], _Output()),
        force_terminal=is_terminal,
        color_system=None if env.get("NO_COLOR") else "auto",  # rich would drop the colours, but not bold and dim
        highlight=False,
        _environ=env,
    )


class Display:
    """Writes to `console`, one complete line at a time.  recorder: records the lines for the receipt."""

    def __init__(self, backend: RehearsedBackend, epochs: int | None, console: Console) -> None:
        self.recorder = Recorder(backend, epochs)
        self._backend, self._epochs, self._console = backend, epochs, console
        self._lock, self._refreshed = threading.Lock(), -math.inf
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                get_renderable=self._table,
                console=console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
            console.show_cursor()  # a killed rehearsal must not leave the cursor hidden

    def launcher_line(self, text: str) -> None:
        """Show a line that the launcher printed."""
        if line := self.recorder.launcher_line(text):
            self._print([line])

    def note(self, text: str) -> None:
        """Show a line of the rehearsal itself."""
        self._print([self.recorder.note(text)])

    def update(self) -> None:
        """Show what has changed since the last call."""
        lines = self.recorder.update()
        if self._live is None:
            self._print(lines)
        elif lines or time.monotonic() - self._refreshed > REFRESH_S:
            self._print([line for line in lines if line.text.startswith("epoch ")])  # the table shows the nodes

    def close(self) -> None:
        """Show the last changes and leave the table as it is; a second call does nothing."""
        if self._live is not None:
            self.update()
            with self._lock:
                self._live.stop()
            self._live = None
        else:
            self.update()

    def text(self, text: str) -> None:
        """Print a text as it is.  Call it after close()."""
        with self._lock:
            self._console.print(Text(harmless(text)), soft_wrap=True)

    def _print(self, lines: Sequence[Line]) -> None:
        with self._lock:
            self._refreshed = time.monotonic()
            for line in lines:
                self._print_line(line)
            if self._live is not None:
                self._live.refresh()

    def _print_line(self, line: Line) -> None:
        time_text = f"{line.at:5.1f} s"
        text = harmless(f"| {line.text}" if line.by == "launcher" else line.text)
        if not self._console.is_terminal:
            self._console.print(Text(f"{time_text}  {text}"), soft_wrap=True)
            return
        row = Table.grid(padding=(0, GAP, 0, 0))  # a long text is wrapped within its column
        row.add_column(no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(Text(time_text, style="dim"), Text(text, style="bold" if line.by == "rehearsal" else ""))
        self._console.print(row)

    def _table(self) -> RenderableType:
        """The nodes as they are now."""
        rows = self._rows()
        if not rows:
            return Text("")
        shown = _most_important(rows, self._console.height - 5)
        parts: list[RenderableType] = [Text(""), node_table(shown, self._console.width)]
        if len(shown) < len(rows):
            parts.append(Text(f"  and {len(rows) - len(shown)} more"))
        return Group(*parts)

    def _rows(self) -> list[Row]:
        changes = list(self.recorder.changes)
        first = {change.node: change.at for change in reversed(changes)}
        return [
            self._row(
                change, epoch_between(first[name], change.at if change.is_end else math.inf, self.recorder.epochs)
            )
            for name, change in self.recorder.latest_changes().items()
        ]

    def _row(self, change: Change, epoch: Epoch | None) -> Row:
        return (
            change.node,
            change.state,
            "" if change.rank is None else str(change.rank),
            f"{epoch.number}/{self._epochs}" if epoch and self._epochs else str(epoch.number if epoch else ""),
            epoch.formatted("train_loss", "{:.4f}") if epoch else "",
            epoch.formatted("images_per_s", "{:,.0f}") if epoch else "",
            change.address,
            f"{self._backend.node_runs[change.node].seconds:.0f} s",
            change.how,
        )


def node_table(rows: Sequence[Row], width: int) -> Table:
    """A table of the nodes that fits into `width` columns: with shorter names, then with fewer columns."""
    if narrowed(COLUMNS, rows, DROPPED_FIRST, width)[0] != list(COLUMNS):
        rows = _with_short_names(rows)
    columns, cells = narrowed(COLUMNS, rows, DROPPED_FIRST, width)
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column("")  # the indent
    for name in columns:
        grid.add_column(name, no_wrap=True)
    for row in cells:
        styles = [
            STATE_STYLES.get(cell, "") if name == "state" else "" for name, cell in zip(columns, row, strict=True)
        ]
        grid.add_row("", *map(Text, map(one_row, row), styles))
    return grid


def _with_short_names(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows with names cut to their first characters, if they remain distinct."""
    names = [row[0][:SHORT_NAME] for row in rows]
    if len(set(names)) < len(names):
        return rows
    return [(name, *row[1:]) for name, row in zip(names, rows, strict=True)]


def _most_important(rows: Sequence[Row], count: int) -> Sequence[Row]:
    """At most `count` rows; nodes that are off are left out first."""
    if len(rows) <= count:
        return rows
    return sorted(rows, key=lambda row: row[1] == "off")[: max(1, count)]
