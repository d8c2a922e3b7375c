"""Logs as far as they were read: new lines are added at the end, and a page gets a window of them.

A log is asked for from its beginning once; after that the backend gives what is new.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock

from launch.core.jobs import Line, Log

MOST_LINES = 200_000  # of a log, the newest
MOST_LOGS = 8
WINDOW = 500  # lines
EVERY_S = 5.0


@dataclass(frozen=True)
class Window:
    """Some lines of a log, in order: the number of each in the log, the machine's, the time, the text."""

    lines: list[tuple[int, int | None, str | None, str]]
    end: int  # the number after the log's last line
    found: int  # how many lines match
    has_earlier: bool  # whether there are matching lines before these
    nothing: str  # why there is no line


@dataclass
class Buffer:
    """The lines of one log.  For threads."""

    open_log: Callable[[], Log]
    log: Log | None = None
    lines: deque[Line] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    end: int = 0  # how many lines were read
    lock: Lock = field(default_factory=Lock)
    read_at: float | None = None
    nothing: str = ""

    def update(self) -> None:
        """Read what is new, but not more often than every few seconds.  Raises TrainerError."""
        with self.lock:
            if self.read_at is not None and time.monotonic() < self.read_at + EVERY_S:
                return
            self.log = self.log or self.open_log()
            self.log.show(self._add)
            self.nothing = "" if self.end else self.log.nothing()
            self.read_at = time.monotonic()

    def _add(self, line: Line) -> None:
        self.lines.append(line)
        self.end += 1

    def window(self, search: str = "", after: int = -1, before: int | None = None) -> Window:
        """The newest lines that match, of those with numbers between `after` and `before`.

        search: words that a line has, in any case of letters.
        """
        with self.lock:
            lines, first = list(self.lines), self.end - len(self.lines)
        words = search.casefold()
        numbered = (
            enumerate(lines, first) if after < first else enumerate(islice(lines, after + 1 - first, None), after + 1)
        )
        stop = self.end if before is None else before
        matching = [
            (number, line)
            for number, line in numbered
            if number < stop and (not words or words in line.text.casefold())
        ]
        shown = matching[-WINDOW:]
        rows = [(number, line.node, line.time.isoformat() if line.time else None, line.text) for number, line in shown]
        return Window(rows, first + len(lines), len(matching), len(shown) < len(matching), self.nothing)


class Buffers:
    """The logs that were looked at last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._buffers: OrderedDict[Hashable, Buffer] = OrderedDict()

    def get(self, key: Hashable, open_log: Callable[[], Log]) -> Buffer:
        """The log of that key with its newest lines.  Raises TrainerError."""
        with self._lock:
            buffer = self._buffers.pop(key, None) or Buffer(open_log)
            self._buffers[key] = buffer
            while len(self._buffers) > MOST_LOGS:
                self._buffers.popitem(last=False)
        try:
            buffer.update()
        except Exception:
            self._buffers.pop(key, None)  # opened again the next time
            raise
        return buffer


def log_of_files(files: Iterable[Path], is_running: bool) -> Log:
    """The lines of text files, such as the logs of a rehearsal's ranks; those of a file that grows, as they come."""
    places = dict.fromkeys(sorted(files), 0)

    def show(show_line: Callable[[Line], object]) -> int:
        count = 0
        for node, (path, place) in enumerate(list(places.items())):
            with path.open("rb") as file:
                file.seek(place)
                for line in file:
                    show_line(Line(line.decode(errors="replace").rstrip("\r\n"), node if len(places) > 1 else None))
                    count += 1
                places[path] = file.tell()
        return count

    return Log(is_running, show, lambda _: "", lambda: "this run has no log here", "")
