"""Relay a script's output byte for byte, up to a limit, and keep its last lines and its metrics."""

import json
import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trainer.contract import METRIC_PREFIX
from trainer.files import append
from trainer.script.pace import PaceFile

OUT, ERR = 1, 2  # as the file descriptors of standard output and standard error
KEPT_LINES, LONGEST_LINE = 30, 2000  # lines, and characters of each
ERROR_LINES = 20  # of these, at least so many are for standard error
_CHUNK = 2**16
_PAIR = re.compile(r"(?:^|(?<=[\s,]))([A-Za-z_][\w./-]*)=([^\s,]+)")
_PREFIX = METRIC_PREFIX.encode()
LONGEST = 2**16  # bytes of a line


@dataclass(frozen=True)
class Line:
    """A line that was printed.  stream: OUT or ERR."""

    stream: int
    text: str


class Tail:
    """The last KEPT_LINES lines of both streams, in order of arrival; ERROR_LINES are reserved for errors."""

    def __init__(self) -> None:
        self._lines = {stream: deque[tuple[int, Line]](maxlen=KEPT_LINES) for stream in (OUT, ERR)}
        self._begun = {OUT: b"", ERR: b""}
        self._count = 0

    def add(self, stream: int, data: bytes) -> None:
        """Process the next bytes of a stream, which may end within a line."""
        *lines, begun = (self._begun[stream] + data).rsplit(b"\n", KEPT_LINES + 1)
        self._begun[stream] = begun[-4 * LONGEST_LINE :]
        for line in lines[-KEPT_LINES:]:
            self._keep(stream, line)

    def close(self) -> None:
        """Process last lines without a newline."""
        for stream, begun in self._begun.items():
            if begun.strip():
                self._keep(stream, begun)
            self._begun[stream] = b""

    def lines(self) -> list[Line]:
        """The last lines.  Much standard output does not displace the errors."""
        out, err = list(self._lines[OUT]), list(self._lines[ERR])
        err = err[-max(ERROR_LINES, KEPT_LINES - len(out)) :]
        out = out[len(out) - min(len(out), KEPT_LINES - len(err)) :]
        return [line for _, line in sorted([*out, *err], key=lambda kept: kept[0])]

    def _keep(self, stream: int, line: bytes) -> None:
        self._count += 1
        self._lines[stream].append((self._count, Line(stream, _shown(line))))


def _shown(line: bytes) -> str:
    """The line as a terminal shows it, after the carriage returns of a progress bar."""
    last = line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
    return last[-LONGEST_LINE:].decode(errors="backslashreplace").rstrip()


def _ignore(_: bytes) -> None:
    pass


@dataclass
class Relay:
    """Relay the output of two pipes.

    most: limit in bytes for both; at the limit `too_much` is printed once, and nothing after it.  listen: called with
    all of standard output.  warn: called once if standard output cannot be written any more.
    """

    most: int
    too_much: str
    warn: Callable[[str], None]
    listen: Callable[[bytes], None] = _ignore
    tail: Tail = field(default_factory=Tail)
    last_output: float = field(default_factory=time.monotonic)
    _passed: int = 0
    _lost: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, pipe: int, stream: int) -> threading.Thread:
        """Relay `pipe` to `stream`, in a thread that ends when the pipe is closed."""
        thread = threading.Thread(target=self._pass_all, args=(pipe, stream), name=f"output {stream}", daemon=True)
        thread.start()
        return thread

    def _pass_all(self, pipe: int, stream: int) -> None:
        while data := os.read(pipe, _CHUNK):
            self.last_output = time.monotonic()
            with self._lock:
                self.tail.add(stream, data)
                room = max(0, self.most - self._passed)
                self._passed += len(data)
                crosses_limit = self._passed - len(data) <= self.most < self._passed
            passed = data[:room]
            if crosses_limit and passed:
                passed = passed[:-1] + b"\n"  # so that the message starts on a new line
            self._write(stream, passed)
            if crosses_limit:
                self._write(ERR, f"\n{self.too_much}\n".encode())
            if stream == OUT:
                self.listen(data)

    def _write(self, stream: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest and stream not in self._lost:
            try:
                rest = rest[os.write(stream, rest) :]
            except OSError as error:
                self._lost.add(stream)  # the reader has exited, or the disk is full
                if stream == OUT:
                    self.warn(f"standard output is lost ({error.strerror}); the training goes on without it.")


def values_of(line: str) -> dict[str, float | int | None]:
    """The numbers on a metric line; None for NaN and infinity, which JSON lacks.  Empty for other lines."""
    text = line.strip()
    if not text.startswith(METRIC_PREFIX):
        return {}
    found: dict[str, float | int | None] = {}
    for name, value in _PAIR.findall(text[len(METRIC_PREFIX) :]):
        number = _number(value)
        if number is not None:
            found[name] = number if math.isfinite(number) else None
    return found


def values_within(line: str) -> dict[str, float | int | None]:
    """The same for a line that mpirun or a launcher may have prefixed."""
    _, prefix, pairs = line.partition(METRIC_PREFIX)
    return values_of(prefix + pairs)


def _number(text: str) -> float | int | None:
    try:
        return int(text) if len(text) < 19 and text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return None


class MetricLines:
    """Extract the metric lines from a stream of bytes, and append each to a file as one JSON object.

    warn: called once if that fails; the training goes on.  pace: also gets each record.
    """

    def __init__(self, path: Path, warn: Callable[[str], None], pace: PaceFile | None = None) -> None:
        self._path, self._warn, self._pace = path, warn, pace
        self._rest = b""
        self._is_lost = False

    def feed(self, data: bytes) -> None:
        """Process the next bytes, which may end within a line."""
        lines, _, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest[-LONGEST:]
        if _PREFIX in lines:
            self._keep([line for line in re.split(rb"[\r\n]", lines) if _PREFIX in line])

    def close(self) -> None:
        """Process a last line without a newline."""
        self.feed(b"\n")
        if self._pace is not None:
            self._pace.write()

    def _keep(self, lines: list[bytes]) -> None:
        records = [values_of(line[:LONGEST].decode(errors="replace")) for line in lines]
        if self._pace is not None:
            for record in records:
                self._pace.note(record, time.time())
        text = "".join(json.dumps(record) + "\n" for record in records if record)
        if not text or self._is_lost:
            return
        try:
            append(self._path, text)  # one write: a reader never sees half a line
        except OSError as error:
            self._is_lost = True
            self._warn(f"cannot write {self._path} ({error.strerror}); the training goes on without it.")
