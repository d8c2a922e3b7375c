"""An epoch's record and its outputs: a JSON line, a [METRIC] line, trackers and curves.png.  Rank 0 only."""

import io
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer import datasets
from trainer.config import TrainConfig
from trainer.contract import METRIC_PREFIX, METRICS
from trainer.epoch import EpochResult, Score
from trainer.errors import MachineError, not_written
from trainer.files import append, write_atomically
from trainer.metrics.counters import peak_memory_mib
from trainer.metrics.probe import Communication
from trainer.metrics.progress import duration
from trainer.metrics.trackers import Record, Sink, is_number, open_trackers
from trainer.optimizers.schedule import count_updates, peak_lr, warmup_length
from trainer.process.machine import device_name
from trainer.terminal import harmless, say
from trainer.training import Training, strategy_name


def epoch_record(
    training: Training,
    epoch: int,
    result: EpochResult,
    score: Score | None,
    communication: Communication | None,
    gpu_percent: float | None,
) -> dict[str, Any]:
    """An epoch's line in metrics.jsonl.  Times in ms are per update; on a CPU they add up to step_ms.  Collective."""
    session, data = training.session, training.data
    peaks = session.gather(peak_memory_mib(session.device))
    bad = session.gather(sorted({*data.train.bad_images, *data.evaluation.bad_images}))
    return {
        "epoch": epoch,
        "updates": training.progress.updates,
        "global_batch": result.global_batch,
        "learning_rate": result.learning_rate,
        "train_loss": result.loss,
        "train_top1": result.top1,
        "eval_loss": score.loss if score else None,
        "eval_top1": score.top1 if score else None,
        "eval_top5": score.top5 if score else None,
        "eval_split": data.eval_split,
        "eval_images": score.images if score else None,
        "images_per_s": result.images / result.seconds,
        "epoch_s": result.seconds,
        "eval_s": score.seconds if score else None,
        "step_ms": 1e3 * result.seconds / max(1, result.updates),
        **breakdown(result, communication),
        "all_reduce_gb_per_s": communication.all_reduce_gb_per_s if communication else None,
        "peak_memory_mib": max(peaks),
        "peak_memory_mib_by_rank": peaks,
        "gpu_utilization_percent": gpu_percent,
        "world_size": session.ranks.world_size,
        "replicas": training.wrapped.replicas,
        "nodes": session.ranks.nodes,
        "device": device_name(session.device),
        "strategy": strategy_name(training.config, session.ranks.world_size),
        "precision": training.precision,
        "parameters": sum(weight.numel() for weight in training.wrapped.plain.parameters()),
        "bad_images": len({name for names in bad for name in names}),
    }


def breakdown(result: EpochResult, communication: Communication | None) -> dict[str, float]:
    """Milliseconds of an update by phase.

    Backward and communication overlap, so the probe's share of both passes is subtracted from the backward pass.  With
    gradient accumulation only the last pass of an update communicates, and so takes longer.
    """
    phases = result.phases_ms
    forward, backward = phases.get("forward", 0.0), phases.get("backward", 0.0)
    per_pass = communication.share if communication else 0.0
    per_update = per_pass / (result.accumulate * (1 - per_pass) + per_pass) if per_pass else 0.0
    waiting = min(backward, per_update * (forward + backward))
    return {
        "data_wait_ms": phases.get("data_wait", 0.0),
        "forward_ms": forward,
        "backward_ms": backward - waiting,
        "communication_ms": waiting,
        "optimizer_ms": phases.get("optimizer", 0.0),
    }


def opening(training: Training, strategy: str) -> str:
    """The first lines that a run prints: the model, the data and how it is trained."""
    session, data, config = training.session, training.data, training.config
    weights = sum(weight.numel() for weight in training.wrapped.plain.parameters())
    ranks = session.ranks.world_size
    where = "GPU" if session.device.type == "cuda" else "CPU"
    updates = count_updates(config, data.train.size, training.wrapped.replicas)
    return (
        f"{config.model}, {weights:,} parameters, on {config.dataset}: {data.train.size:,} training and "
        f"{data.evaluation.size:,} evaluation images of {data.image_size} px, {data.classes} classes"
        f"{f', evaluated on {data.eval_split}' if datasets.is_folder(config.dataset) else ''}\n"
        f"{f'{data.sizes}{chr(10)}' if data.sizes else ''}"
        f"{strategy} on {ranks} {where}{'s' if ranks > 1 else ''}, {training.precision}, "
        f"{_count(config.epochs, 'epoch')}, {_count(updates, 'update')}\n"
        f"{config.optimizer}, learning rate {peak_lr(config):g}, {config.schedule}, "
        f"{warmup_length(config):g} of {_count(config.epochs, 'epoch')} to warm up"
    )


def _count(number: int, noun: str) -> str:
    """1, 'epoch' -> '1 epoch'; 3, 'update' -> '3 updates'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seconds_left(training: Training, record: dict[str, Any]) -> float:
    """Estimated seconds for the remaining epochs and evaluations, at the pace of the last one."""
    config, last = training.config, record["epoch"]
    epochs = float(config.epochs - last)
    if config.max_steps is not None:
        epochs = min(epochs, (config.max_steps - record["updates"]) * last / max(1, record["updates"]))
    evaluation: float = record["eval_s"] or 0.0
    training_s: float = record["epoch_s"]
    return epochs * (training_s + evaluation / config.eval_every)


def headline(record: dict[str, Any], epochs: int, left_s: float) -> str:
    """An epoch's record in one readable line.  left_s: estimated time to the end of the run."""
    parts = [
        f"epoch {record['epoch']}/{epochs}",
        f"loss {record['train_loss']:.4f}",
        f"accuracy {record['train_top1']:.1%}",
    ]
    if record["eval_top1"] is not None:
        half = record["eval_split"]
        parts += [f"{half} loss {record['eval_loss']:.4f}", f"{half} accuracy {record['eval_top1']:.1%}"]
    parts += [f"{record['images_per_s']:,.0f} images/s", f"{record['epoch_s']:.1f} s"]
    if left_s > 0:
        parts.append(f"{duration(left_s)} left")
    return "  ".join(parts)


class Journal:
    """All sinks that the settings ask for, behind one interface."""

    def __init__(self, sinks: list[Sink]) -> None:
        self._sinks = sinks

    def write(self, record: Record) -> None:
        """Write an epoch's record to all sinks; those that take only numbers skip None and lists."""
        for sink in self._sinks:
            sink.write(record)

    def close(self) -> None:
        """Flush and close all sinks."""
        for sink in self._sinks:
            sink.close()


def _to_stderr(warning: str) -> None:
    print(harmless(f"warning: {warning}"), file=sys.stderr)


def open_journal(
    config: TrainConfig, run_dir: Path, epochs_done: int, warn: Callable[[str], None] = _to_stderr
) -> Journal:
    """Open the sinks of this run.  Raises SettingsError for one whose package is missing.

    warn: called once for each tracker that fails, which then gets no more records.
    """
    return Journal(
        [JsonLines(run_dir / METRICS, epochs_done, warn), MetricLines(), *open_trackers(config, run_dir, warn)]
    )


class JsonLines:
    """RUN/metrics.jsonl, with one JSON object per line.

    Opening it removes the lines of epochs that a resumed run repeats.  A file with invalid lines is kept as
    metrics.jsonl.damaged.
    """

    def __init__(self, path: Path, epochs_done: int, warn: Callable[[str], None] = _to_stderr) -> None:
        self._path = path
        if os.path.lexists(path):
            self._keep_epochs(epochs_done, warn)

    def write(self, record: Record) -> None:
        line = _json_line(record)
        try:
            append(self._path, line)  # one write, so that readers never see half a line
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
            warn(f"{self._path} has {len(lines) - len(records)} invalid lines; the original file is now {aside}.")
        write_atomically(self._path, "".join(_json_line(record) for record in records if record["epoch"] <= epochs))


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of a metrics.jsonl, skipping invalid lines.  Raises OSError."""
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
    """Replace NaN and infinities, which JSON does not have, by None."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class MetricLines:
    """Prints `[METRIC] name=value name=value ...` to standard output, for programs; nothing on a terminal."""

    def write(self, record: Record) -> None:
        if sys.stdout.isatty() and sys.stderr.isatty():  # under mpirun only stdout is a terminal
            return
        pairs = " ".join(f"{name}={_short(value)}" for name, value in record.items() if is_number(value))
        say(f"{METRIC_PREFIX} {pairs}")

    def close(self) -> None:
        pass


def _short(value: float) -> str:
    """Format counts in full and other numbers to six digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


# From Okabe and Ito's palette, which colour-blind readers can distinguish.
BLUE, ORANGE = "#0072B2", "#D55E00"


def draw(records: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Write curves of loss and accuracy to `path`; nothing without records.  Raises OSError."""
    if not records:
        return
    # matplotlib warns at length if the user has no home directory for its font cache, as in some containers.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure  # not pyplot, which would look for a display

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _plot(left, records, "loss", "cross-entropy loss", factor=1)
    _plot(right, records, "top1", "top-1 accuracy (%)", factor=100)
    left.legend(frameon=False)
    figure.suptitle(title, fontsize=11)
    data = io.BytesIO()
    figure.savefig(data, dpi=150)
    write_atomically(path, data.getvalue())  # replaces a symbolic link rather than following it


def _plot(axes: Any, records: Sequence[dict[str, Any]], kind: str, label: str, factor: float) -> None:
    """Draw train_KIND and eval_KIND per epoch, skipping epochs without an evaluation."""
    from matplotlib.ticker import MaxNLocator

    for part, shown, colour, marker in (("train", "training", BLUE, "o"), ("eval", "evaluation", ORANGE, "s")):
        measured = [record for record in records if _is_drawable(record.get(f"{part}_{kind}"), record["epoch"])]
        epochs = [record["epoch"] for record in measured]
        values = [record[f"{part}_{kind}"] * factor for record in measured]
        if measured:
            axes.plot(epochs, values, color=colour, marker=marker, markersize=4, label=shown)
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _is_drawable(*values: Any) -> bool:
    """Whether all are numbers that axes can show, as the file is not validated."""
    return all(is_number(value) and abs(value) < 1e12 for value in values)
