"""`[METRIC] name=value ...` lines on a script's standard output: each is a line of metrics.jsonl.  Torch-free."""

import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path

from trainer.contract import METRIC_PREFIX
from trainer.files import append
from trainer.script.pace import PaceFile

_PAIR = re.compile(r"(?:^|(?<=[\s,]))([A-Za-z_][\w./-]*)=([^\s,]+)")
_PREFIX = METRIC_PREFIX.encode()
LONGEST = 2**16  # bytes of a line


def values_of(line: str) -> dict[str, float | int | None]:
    """The numbers on a metric line; None for NaN and the infinities, which JSON does not have.  Empty for others."""
    text = line.strip()
    if not text.startswith(METRIC_PREFIX):
        return {}
    found: dict[str, float | int | None] = {}
    for name, value in _PAIR.findall(text[len(METRIC_PREFIX) :]):
        number = _number(value)
        if number is not None:
            found[name] = number if math.isfinite(number) else None
    return found


def _number(text: str) -> float | int | None:
    try:
        return int(text) if len(text) < 19 and text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return None


class MetricLines:
    """Finds the metric lines in a stream of bytes, and appends each to a file as one JSON object.

    warn: told once if that fails; the training goes on.  pace: gets each record as well.
    """

    def __init__(self, path: Path, warn: Callable[[str], None], pace: PaceFile | None = None) -> None:
        self._path, self._warn, self._pace = path, warn, pace
        self._rest = b""
        self._is_lost = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes, which need not end with a line."""
        lines, _, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest[-LONGEST:]
        if _PREFIX in lines:
            self._keep([line for line in re.split(rb"[\r\n]", lines) if _PREFIX in line])

    def close(self) -> None:
        """Takes what was written as a last line without its end."""
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
