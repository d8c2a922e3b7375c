"""Shows a rehearsal while it runs: its lines, and on a terminal the nodes in a table below them."""

from __future__ import annotations

import io
import math
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from textwrap import wrap

from launch.core.tables import table
from launch.rehearse.stage.recording import Line, Recorder, epoch_of
from launch.rehearse.stage.scene import Scene

COLUMNS = ("node", "state", "rank", "epoch", "loss", "images/s", "address", "time", "end")
FIRST_TO_GO = ("end", "address", "time", "images/s", "loss")  # where the terminal is narrow
SHORT = 10  # of an instance's id: i- and 8 of 17 digits
EVERY_S = 0.5
# Of the terminal's own palette, which suits its background.
DIM, BOLD, PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
COLOURS = {"boots": "\x1b[33m", "trains": "\x1b[32m", "uploads": "\x1b[36m", "off": DIM}


class Display:
    """Everything it writes goes to standard output, a whole line at a time."""

    def __init__(self, scene: Scene, epochs: int, is_terminal: bool, has_colours: bool = False) -> None:
        self.recorder = Recorder(scene, epochs)
        self._scene, self._epochs, self._is_terminal, self._has_colours = scene, epochs, is_terminal, has_colours
        self._lock, self._drawn, self._looked = threading.Lock(), 0, -math.inf

    def line(self, text: str) -> None:
        """A line of the launcher's."""
        if line := self.recorder.heard(text):
            self._write([line])

    def note(self, text: str) -> None:
        """A line of the rehearsal's own."""
        self._write([self.recorder.note(text)])

    def look(self) -> None:
        """Shows what has changed."""
        new = self.recorder.look()
        if not self._is_terminal:
            self._write(new)
        elif new or time.monotonic() - self._looked > EVERY_S:
            self._looked = time.monotonic()
            self._write([line for line in new if line.text.startswith("epoch ")])  # the table shows the nodes

    def close(self) -> None:
        """Leaves the table as it is."""
        self.look()
        self._drawn = 0
        self._is_terminal = False

    def say(self, text: str) -> None:
        """A text of its own, after close()."""
        with self._lock:
            self._put(f"{text}\n")

    def _put(self, text: str) -> None:
        """Nobody may listen any more, as behind `head`: the job goes on, and the receipt is a file too."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:
            sys.stdout = io.StringIO()

    def _write(self, lines: Sequence[Line]) -> None:
        with self._lock:
            if not self._is_terminal:
                self._put("".join(f"{_text(line)}\n" for line in lines))
                return
            size = shutil.get_terminal_size()
            up = f"\x1b[{self._drawn}A\x1b[J" if self._drawn else ""
            drawn = self._table(size.columns - 1, size.lines - 5)
            said = [row for line in lines for row in self._coloured(line, size.columns)]
            self._put(up + "".join(f"{text}\n" for text in [*said, *drawn]))
            self._drawn = len(drawn)

    def _coloured(self, line: Line, width: int) -> list[str]:
        """Its rows: a terminal would break them anywhere."""
        first, *more = wrap(_text(line), width, subsequent_indent=" " * 12, break_on_hyphens=False) or [""]
        if not self._has_colours:
            return [first, *more]
        bold = BOLD if line.by == "rehearsal" else ""
        return [f"{DIM}{first[:9]}{PLAIN}{bold}{first[9:]}{PLAIN}", *(f"{bold}{row}{PLAIN}" for row in more)]

    def _table(self, width: int, height: int) -> list[str]:
        """The nodes; those that are off go first where there are too many."""
        rows = self._rows()
        if not rows:
            return []
        if len(rows) > height:
            rows = sorted(rows, key=lambda row: row[1] == "off")[: max(1, height)]
        heading, *body = fitted(rows, width)
        if self._has_colours:
            at = heading.index("state")
            body = [
                row[:at] + COLOURS.get(state, "") + state + PLAIN + row[at + len(state) :]
                for row, (_, state, *_) in zip(body, rows, strict=True)
            ]
            heading = f"{DIM}{heading}{PLAIN}"
        more = len(self._scene.lives) - len(rows)
        return ["", heading, *body, *([f"  and {more} more"] if more > 0 else [])]

    def _rows(self) -> list[tuple[str, ...]]:
        changes, newest = list(self.recorder.changes), self.recorder.newest()
        began = {change.node: change.at for change in reversed(changes)}
        rows: list[tuple[str, ...]] = []
        for name, now in newest.items():
            epoch = epoch_of(began[name], now.at if now.is_end else math.inf, list(self.recorder.epochs))
            life = self._scene.lives[name]
            rows.append((
                name, now.state, "" if now.rank is None else str(now.rank),
                f"{epoch.number}/{self._epochs}" if epoch else "",
                epoch.said("train_loss", "{:.4f}") if epoch else "",
                epoch.said("images_per_s", "{:,.0f}") if epoch else "",
                now.address, f"{life.seconds:.0f} s", now.how,
            ))  # fmt: skip
        return rows


def fitted(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A table of the nodes that is no wider than `width`, if that can be: with short names, then with fewer columns."""
    lines = table(COLUMNS, rows).splitlines()
    names = [row[0][:SHORT] for row in rows]
    if len(set(names)) == len(names):  # else they must be told apart
        rows = [(name, *row[1:]) for name, row in zip(names, rows, strict=True)]
    for place in range(len(FIRST_TO_GO) + 1):
        if max(map(len, lines)) <= width:
            break
        kept = [number for number, name in enumerate(COLUMNS) if name not in FIRST_TO_GO[:place]]
        lines = table([COLUMNS[k] for k in kept], [[row[k] for k in kept] for row in rows]).splitlines()
    return [line[:width] for line in lines]


def _text(line: Line) -> str:
    return f"{line.at:5.1f} s  {'| ' if line.by == 'launcher' else ''}{line.text}"
