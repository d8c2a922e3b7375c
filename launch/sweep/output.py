"""The output of a run while it trains: kept in its log, and read for the trainer's records."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from launch.core.run import LARGEST
from trainer.contract import METRIC_PREFIX

Record = dict[str, Any]


class Output:
    """Logs a run's lines.

    last: the last line; records: those of [METRIC] lines, as in metrics.jsonl.
    """

    def __init__(self, log: IO[str], on_record: Callable[[Record], None] = lambda record: None) -> None:
        self._log, self._on_record = log, on_record
        self.last = ""
        self.records: list[Record] = []

    def add(self, line: str) -> None:
        with suppress(OSError):  # on a full disk the run itself ends with that error
            self._log.write(f"{line}\n")
            self._log.flush()  # for `tail -f`
        self.last = line.strip() or self.last
        if METRIC_PREFIX in line and (record := numbers(line.partition(METRIC_PREFIX)[2])):
            self.records.append(record)
            self._on_record(record)


def numbers(pairs: str) -> Record:
    """'epoch=2 train_loss=0.5' -> {"epoch": 2, "train_loss": 0.5}; None for NaN, infinity and numbers beyond 1e15."""
    record: Record = {}
    for word in pairs.split():
        name, equals, text = word.partition("=")
        try:
            value: float = int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError:
            continue
        if equals:
            record[name] = value if abs(value) < LARGEST else None
    return record


def open_log(path: Path) -> IO[str]:
    """The log of a run, opened to append to.  Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8", errors="backslashreplace")
