"""Where an epoch's record goes: a JSON line, a [METRIC] line, and trackers.  Rank 0 only."""

import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainer.config import TrainConfig
from trainer.contract import METRIC_PREFIX, METRICS
from trainer.errors import not_written
from trainer.files import write_atomically
from trainer.metrics.trackers import Record, Sink, is_number, open_trackers


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
    print(f"warning: {warning}", file=sys.stderr)


def open_journal(
    config: TrainConfig, run_dir: Path, epochs_done: int, warn: Callable[[str], None] = _to_stderr
) -> Journal:
    """The sinks of this run.  Raises SettingsError for one whose package is missing.

    warn: told, once each, of a TensorBoard, wandb or MLflow that fails; it gets no more records.
    """
    return Journal([JsonLines(run_dir / METRICS, epochs_done), MetricLines(), *open_trackers(config, run_dir, warn)])


class JsonLines:
    """RUN/metrics.jsonl: one object a line.  Lines of epochs that a resumed run does again are dropped first."""

    def __init__(self, path: Path, epochs_done: int) -> None:
        self._path = path
        if path.exists():
            _keep_epochs(path, epochs_done)

    def write(self, record: Record) -> None:
        line = _json_line(record)
        try:
            with self._path.open("a") as file:
                file.write(line)  # one write: a reader never sees half a line
        except OSError as error:
            sentence = f"cannot write {self._path} ({error.strerror}); free some space, then start again."
            raise not_written(error, sentence) from error

    def close(self) -> None:
        pass


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line that was cut off is left out."""
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def _keep_epochs(path: Path, epochs: int) -> None:
    kept = [_json_line(record) for record in read_records(path) if record["epoch"] <= epochs]
    write_atomically(path, "".join(kept))


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
    """One `[METRIC] name=value name=value ...` line on standard output, for SageMaker and the sweep."""

    def write(self, record: Record) -> None:
        pairs = " ".join(f"{name}={_short(value)}" for name, value in record.items() if is_number(value))
        # One write: mpirun and torchrun mix the output of ranks between writes.
        sys.stdout.write(f"{METRIC_PREFIX} {pairs}\n")
        sys.stdout.flush()

    def close(self) -> None:
        pass


def _short(value: float) -> str:
    """Counts in full, everything else to six digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
