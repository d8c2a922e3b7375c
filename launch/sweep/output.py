"""The output of a run while it trains: kept in its log, and read for the trainer's records."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from launch.core.run import LARGEST
from trainer.contract import METRIC_PREFIX
from trainer.files import open_to_append
from trainer.script.metrics import LONGEST

Record = dict[str, Any]

# What is held of a run's records, some 100 MB: every training of an account may write into the log of any job.
MOST_VALUES, LONGEST_NAME = 300_000, 100


class Output:
    """Logs a run's lines.

    last: the last line; records: those of [METRIC] lines, as in metrics.jsonl, of very many the newest.
    """

    def __init__(self, log: IO[str], on_record: Callable[[Record], None] = lambda record: None) -> None:
        self._log, self._on_record = log, on_record
        self.last = ""
        self.records: deque[Record] = deque()
        self._values = 0

    def add(self, line: str) -> None:
        with suppress(OSError):  # on a full disk the run itself ends with that error
            self._log.write(f"{line}\n")
            self._log.flush()  # so that whoever follows the file sees it at once
        self.last = line.strip() or self.last
        if METRIC_PREFIX in line:
            record = numbers(line.partition(METRIC_PREFIX)[2][:LONGEST])
            if record:
                self._keep(record)
                self._on_record(record)

    def _keep(self, record: Record) -> None:
        self.records.append(record)
        self._values += len(record)
        while self._values > MOST_VALUES:
            self._values -= len(self.records.popleft())


def numbers(pairs: str) -> Record:
    """'epoch=2 train_loss=0.5' -> {"epoch": 2, "train_loss": 0.5}; None for what JSON has no number for.

    And for what nothing can count with: a training may print 400 digits.
    """
    record: Record = {}
    for word in pairs.split():
        name, equals, text = word.partition("=")
        try:
            value: float = int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError:
            continue
        if equals and len(name) <= LONGEST_NAME:
            record[name] = value if abs(value) < LARGEST else None
    return record


def open_log(path: Path) -> IO[str]:
    """The log of a run, opened to append to.  Raises OSError, also where it is a link or a pipe of a stranger's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return open_to_append(path)
