"""Where an epoch's record goes: a JSON line, a [METRIC] line, TensorBoard, wandb, MLflow.  Rank 0 only."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from trainer.config import TrainConfig
from trainer.contract import METRIC_PREFIX, METRICS
from trainer.errors import MachineError, SettingsError

Record = Mapping[str, Any]


class Sink(Protocol):
    """Something that keeps records."""

    def write(self, record: Record) -> None: ...

    def close(self) -> None: ...


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


def open_journal(config: TrainConfig, run_dir: Path, epochs_done: int) -> Journal:
    """The sinks of this run.  Raises SettingsError for one whose package is missing."""
    sinks: list[Sink] = [JsonLines(run_dir / METRICS, epochs_done), MetricLines()]
    if config.tensorboard:
        sinks.append(_optional("tensorboard", lambda: TensorBoard(run_dir)))
    if config.wandb:
        project = config.wandb
        sinks.append(_optional("wandb", lambda: Wandb(project, config, run_dir)))
    if config.mlflow:
        experiment = config.mlflow
        sinks.append(_optional("mlflow", lambda: Mlflow(experiment, config, run_dir)))
    return Journal(sinks)


def _optional(package: str, make: Callable[[], Sink]) -> Sink:
    try:
        return make()
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"--{package} needs a package that is not installed ({error.name}); "
            f"run pip install 'aws-ddp-toolkit[{package}]' or drop the flag."
        ) from error


class JsonLines:
    """RUN/metrics.jsonl: one object a line.  Lines of epochs that a resumed run does again are dropped first."""

    def __init__(self, path: Path, epochs_done: int) -> None:
        self._path = path
        if path.exists():
            _keep_epochs(path, epochs_done)

    def write(self, record: Record) -> None:
        line = json.dumps(record) + "\n"
        try:
            with self._path.open("a") as file:
                file.write(line)  # one write: a reader never sees half a line
        except OSError as error:
            raise MachineError(
                f"cannot write {self._path} ({error.strerror}); free some space, then start again."
            ) from error

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
    kept = [json.dumps(record) + "\n" for record in read_records(path) if record["epoch"] <= epochs]
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text("".join(kept))
    temporary.replace(path)


class MetricLines:
    """One `[METRIC] name=value name=value ...` line on standard output, for SageMaker and the sweep."""

    def write(self, record: Record) -> None:
        pairs = " ".join(f"{name}={value:.6g}" for name, value in record.items() if _is_number(value))
        # One write: mpirun and torchrun mix the output of ranks between writes.
        sys.stdout.write(f"{METRIC_PREFIX} {pairs}\n")
        sys.stdout.flush()

    def close(self) -> None:
        pass


class TensorBoard:
    """Event files in the run folder; needs no network."""

    def __init__(self, run_dir: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run_dir / "tensorboard"))

    def write(self, record: Record) -> None:
        for name, value in record.items():
            if _is_number(value):
                self._writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A Weights & Biases run: online when wandb finds a key of yours, else offline in the run folder."""

    def __init__(self, project: str, config: TrainConfig, run_dir: Path) -> None:
        import wandb

        online = wandb.setup().settings.api_key is not None
        self._run = wandb.init(
            project=project, dir=run_dir, config=config.model_dump(mode="json"), mode="online" if online else "offline"
        )

    def write(self, record: Record) -> None:
        self._run.log({name: value for name, value in record.items() if _is_number(value)}, step=record["epoch"])

    def close(self) -> None:
        self._run.finish()


class Mlflow:
    """An MLflow run: on the tracking server that MLflow is set up for, else in a file in the run folder."""

    def __init__(self, experiment: str, config: TrainConfig, run_dir: Path) -> None:
        import mlflow

        self._mlflow = mlflow
        if not mlflow.is_tracking_uri_set():
            mlflow.set_tracking_uri(f"sqlite:///{(run_dir / 'mlflow.db').resolve()}")
        mlflow.set_experiment(experiment)
        mlflow.start_run(run_name=run_dir.name)
        mlflow.log_params(config.model_dump(mode="json"))

    def write(self, record: Record) -> None:
        numbers = {name: float(value) for name, value in record.items() if _is_number(value)}
        self._mlflow.log_metrics(numbers, step=record["epoch"])

    def close(self) -> None:
        self._mlflow.end_run()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
