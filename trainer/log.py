"""Where an epoch's record goes: a JSON line, a [METRIC] line, TensorBoard, wandb, MLflow.  Rank 0 only.

The first two are the run's own and must work.  The others are for people to look at: one that fails
is dropped with a warning, since no training should end for it.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

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


def _to_stderr(warning: str) -> None:
    print(f"warning: {warning}", file=sys.stderr)


def open_journal(
    config: TrainConfig, run_dir: Path, epochs_done: int, warn: Callable[[str], None] = _to_stderr
) -> Journal:
    """The sinks of this run.  Raises SettingsError for one whose package is missing.

    warn: told, once each, of a TensorBoard, wandb or MLflow that fails; it gets no more records.
    """
    sinks: list[Sink] = [JsonLines(run_dir / METRICS, epochs_done), MetricLines()]
    if config.tensorboard:
        sinks.append(Dispensable("tensorboard", lambda: TensorBoard(run_dir), warn))
    if config.wandb:
        project = config.wandb
        sinks.append(Dispensable("wandb", lambda: Wandb(project, config, run_dir), warn))
    if config.mlflow:
        experiment = config.mlflow
        sinks.append(Dispensable("mlflow", lambda: Mlflow(experiment, config, run_dir), warn))
    return Journal(sinks)


class Dispensable:
    """A sink that the training does without once it fails, be it a lost network or a full disk."""

    def __init__(self, package: str, make: Callable[[], Sink], warn: Callable[[str], None]) -> None:
        self._package, self._warn = package, warn
        self._sink: Sink | None = None
        try:
            self._sink = make()
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"--{package} needs a package that is not installed ({error.name}); "
                f"run pip install 'aws-ddp-toolkit[{package}]' or drop the flag."
            ) from error
        except Exception as error:
            self._drop(error)

    def write(self, record: Record) -> None:
        try:
            if self._sink is not None:
                self._sink.write(record)
        except Exception as error:
            self._drop(error)

    def close(self) -> None:
        try:
            if self._sink is not None:
                self._sink.close()
        except Exception as error:
            self._drop(error)

    def _drop(self, error: Exception) -> None:
        self._sink = None
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        self._warn(f"{self._package} failed ({reason}); training goes on without it, and {METRICS} has every number.")


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
    kept = [_json_line(record) for record in read_records(path) if record["epoch"] <= epochs]
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text("".join(kept))
    temporary.replace(path)


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
        pairs = " ".join(f"{name}={_short(value)}" for name, value in record.items() if _is_number(value))
        # One write: mpirun and torchrun mix the output of ranks between writes.
        sys.stdout.write(f"{METRIC_PREFIX} {pairs}\n")
        sys.stdout.flush()

    def close(self) -> None:
        pass


def _short(value: float) -> str:
    """Counts in full, everything else to six digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


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

        settings = wandb.setup().settings
        has_key = settings.api_key is not None or _netrc_knows(settings.base_url)
        self._run = wandb.init(
            project=project,
            dir=run_dir,
            config=config.model_dump(mode="json"),
            mode=None if has_key else "offline",  # None: online, unless WANDB_MODE says otherwise
        )

    def write(self, record: Record) -> None:
        self._run.log({name: value for name, value in record.items() if _is_number(value)}, step=record["epoch"])

    def close(self) -> None:
        self._run.finish()


def _netrc_knows(url: str) -> bool:
    """Whether `wandb login` has left a key for this server: in $NETRC, ~/.netrc or ~/_netrc, as wandb looks itself."""
    from netrc import NetrcParseError, netrc

    named = os.environ.get("NETRC")
    for path in [named] if named else ["~/.netrc", "~/_netrc"]:
        try:
            return netrc(Path(path).expanduser()).authenticators(urlsplit(url).netloc) is not None
        except FileNotFoundError:
            continue
        except (NetrcParseError, OSError, RuntimeError):  # the last for a user without a home
            return False
    return False


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
