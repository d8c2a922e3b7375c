"""Where an epoch's record goes: a JSON line, a [METRIC] line, and trackers.  Rank 0 only."""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainer.config import TrainConfig
from trainer.contract import METRIC_PREFIX, METRICS
from trainer.errors import MachineError, not_written
from trainer.files import append, write_atomically
from trainer.metrics.trackers import Record, Sink, is_number, open_trackers
from trainer.terminal import harmless, say


class Journal:
    """Every sink the settings ask for, behind one call."""

    def __init__(self, sinks: list[Sink]) -> None:
        self._sinks = sinks

    def write(self, record: Record) -> None:
        """One epoch's numbers; None and lists stay out of sinks that take only numbers."""
        for sink in self._sinks:
            sink.write(record)

    def close(self) -> None:
        """Flushes and closes all sinks."""
        for sink in self._sinks:
            sink.close()


def _to_stderr(warning: str) -> None:
    print(harmless(f"warning: {warning}"), file=sys.stderr)


def open_journal(
    config: TrainConfig, run_dir: Path, epochs_done: int, warn: Callable[[str], None] = _to_stderr
) -> Journal:
    """The sinks of this run.  Raises SettingsError for one whose package is missing.

    warn: told, once each, of a TensorBoard, wandb or MLflow that fails; it gets no more records.
    """
    return Journal(
        [JsonLines(run_dir / METRICS, epochs_done, warn), MetricLines(), *open_trackers(config, run_dir, warn)]
    )


class JsonLines:
    """RUN/metrics.jsonl: one object a line.

    Lines of epochs that a resumed run does again are dropped first.  A file with lines that are no
    records is kept beside, as metrics.jsonl.damaged.
    """

    def __init__(self, path: Path, epochs_done: int, warn: Callable[[str], None] = _to_stderr) -> None:
        self._path = path
        if os.path.lexists(path):
            self._keep_epochs(epochs_done, warn)

    def write(self, record: Record) -> None:
        line = _json_line(record)
        try:
            append(self._path, line)  # one write: a reader never sees half a line
        except OSError as error:
            sentence = f"cannot write {self._path} ({error.strerror}); free some space, then start again."
            raise not_written(error, sentence) from error

    def close(self) -> None:
        pass

    def _keep_epochs(self, epochs: int, warn: Callable[[str], None]) -> None:
        try:
            lines = _lines(self._path)
        except OSError as error:
            sentence = f"cannot read {self._path} ({error.strerror}); move it away, then start again."
            raise MachineError(sentence) from error
        records = [record for record in map(_record_in, lines) if record is not None]
        if len(records) < len(lines):
            aside = self._path.with_name(f"{self._path.name}.damaged")
            self._path.replace(aside)
            warn(f"{self._path} has lines that are no records ({len(lines) - len(records)}); as it was, it is {aside}.")
        write_atomically(self._path, "".join(_json_line(record) for record in records if record["epoch"] <= epochs))


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl, without lines that hold none.  Raises OSError."""
    return [record for record in map(_record_in, _lines(path)) if record is not None]


def _lines(path: Path) -> list[bytes]:
    """The lines of `path`; a last one that was cut off is left out."""
    *lines, _ = path.read_bytes().split(b"\n")
    return [line for line in lines if line.strip()]


def _record_in(line: bytes) -> dict[str, Any] | None:
    """The record of an epoch in the line, or None if it holds anything else."""
    try:
        content = json.loads(line)
        _finite(content)  # which a line of a thousand brackets is too deep for
    except (ValueError, RecursionError):
        return None
    is_record = isinstance(content, dict) and type(content.get("epoch")) is int
    return content if is_record else None


def _json_line(record: Record) -> str:
    return json.dumps(_finite(record), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """`value` with None for NaN and the infinities, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class MetricLines:
    """One `[METRIC] name=value name=value ...` line on standard output, for programs; none on a terminal."""

    def write(self, record: Record) -> None:
        if sys.stdout.isatty() and sys.stderr.isatty():  # mpirun gives its ranks a terminal as stdout, and only there
            return
        pairs = " ".join(f"{name}={_short(value)}" for name, value in record.items() if is_number(value))
        say(f"{METRIC_PREFIX} {pairs}")

    def close(self) -> None:
        pass


def _short(value: float) -> str:
    """Counts in full, everything else to six digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
