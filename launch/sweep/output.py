"""What a run says while it goes on: kept in its log, and read for numbers, reasons and bills."""

import math
import re
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from trainer.contract import METRIC_PREFIX

# A node's number, or a rehearsal's time, may stand before it.
_ERROR = re.compile(r"^(?:\[\d+\] |\s*[\d.]+ s  (?:\| )?)*error: (.+)$")
# The last words of launch.ec2 and launch.sagemaker.
_BILL = re.compile(r"(?:cost about|billed, about) ([\d,]+\.\d+) USD")


class Listener:
    """Hears a run's lines.  reason: the last error told; usd: the last bill; records: by epoch, as metrics.jsonl."""

    def __init__(self, log: IO[str]) -> None:
        self._log = log
        self.reason, self.last = "", ""
        self.usd: float | None = None
        self.records: dict[int, dict[str, Any]] = {}

    def hear(self, line: str) -> None:
        with suppress(OSError):  # on a full disk the run itself ends, and says so
            self._log.write(f"{line}\n")
            self._log.flush()  # whoever follows it sees it at once
        self.last = line.strip() or self.last
        if METRIC_PREFIX in line:
            record = numbers(line.partition(METRIC_PREFIX)[2])
            if isinstance(record.get("epoch"), int):
                self.records[record["epoch"]] = record
        elif found := _ERROR.match(line):
            self.reason = found[1].strip()
        elif found := _BILL.search(line):
            self.usd = float(found[1].replace(",", ""))


def numbers(pairs: str) -> dict[str, Any]:
    """'epoch=2 train_loss=0.5' -> {"epoch": 2, "train_loss": 0.5}; None for what JSON has no number for."""
    found: dict[str, Any] = {}
    for word in pairs.split():
        name, equals, text = word.partition("=")
        try:
            value: float = int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError:
            continue
        if equals:
            found[name] = value if math.isfinite(value) else None
    return found


def open_log(path: Path) -> IO[str]:
    """The log of a run, to write on at its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8")
