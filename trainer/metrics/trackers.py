"""Experiment trackers: TensorBoard, Weights & Biases and MLflow.

A tracker that fails is dropped with a warning and does not end the training.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from trainer.config import TrainConfig
from trainer.contract import METRICS
from trainer.errors import SettingsError, one_line
from trainer.settings.hidden import without_secrets

Record = Mapping[str, Any]


class Sink(Protocol):
    """An output for records."""

    def write(self, record: Record) -> None: ...

    def close(self) -> None: ...


def open_trackers(config: TrainConfig, run_dir: Path, warn: Callable[[str], None]) -> list[Sink]:
    """Open the trackers that the settings ask for.  Raises SettingsError for one whose package is missing."""
    trackers: list[tuple[str, bool, Callable[[], Sink]]] = [
        ("tensorboard", config.tensorboard, lambda: TensorBoard(run_dir)),
        ("wandb", bool(config.wandb), lambda: Wandb(config.wandb or "", config, run_dir)),
        ("mlflow", bool(config.mlflow), lambda: Mlflow(config.mlflow or "", config, run_dir)),
    ]
    return [OptionalSink(package, make, warn) for package, is_enabled, make in trackers if is_enabled]


class OptionalSink:
    """A sink that is dropped when it fails, for example without network or on a full disk."""

    def __init__(self, package: str, make: Callable[[], Sink], warn: Callable[[str], None]) -> None:
        self._package, self._warn = package, warn
        self._sink: Sink | None = None
        try:
            self._sink = make()
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"--{package} needs a package that is not installed ({error.name}); "
                f"run pip install -c constraints.txt -e '.[{package}]' in the checkout, or drop the flag."
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
        # The text may come from a server, and may contain the server's address with a password.
        reason = one_line(without_secrets((str(error).splitlines() or [""])[0]) or type(error).__name__, 300)
        self._warn(f"{self._package} failed ({reason}); training continues without it, and {METRICS} has every number.")


class TensorBoard:
    """Event files in the run folder; needs no network."""

    def __init__(self, run_dir: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run_dir / "tensorboard"))

    def write(self, record: Record) -> None:
        for name, value in record.items():
            if is_number(value):
                self._writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A Weights & Biases run: online if wandb finds an API key, else offline in the run folder."""

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
        self._run.log({name: value for name, value in record.items() if is_number(value)}, step=record["epoch"])

    def close(self) -> None:
        self._run.finish()


def _netrc_knows(url: str) -> bool:
    """Whether `wandb login` has left a key for this server, in ~/.netrc or ~/_netrc."""
    from netrc import NetrcParseError, netrc

    for path in ("~/.netrc", "~/_netrc"):
        try:
            return netrc(Path(path).expanduser()).authenticators(urlsplit(url).netloc) is not None
        except FileNotFoundError:
            continue
        except (NetrcParseError, OSError, RuntimeError):  # the last for a user without a home
            return False
    return False


class Mlflow:
    """An MLflow run on the configured tracking server, else in a file in the run folder."""

    def __init__(self, experiment: str, config: TrainConfig, run_dir: Path) -> None:
        # Otherwise it sends telemetry to its authors, whichever server is used.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        import mlflow

        self._mlflow = mlflow
        if not mlflow.is_tracking_uri_set():
            mlflow.set_tracking_uri(f"sqlite:///{(run_dir / 'mlflow.db').resolve()}")
        if "@" in urlsplit(str(mlflow.get_tracking_uri())).netloc:
            # At the end of a run it would print the server's address, including the password, to a log others can read.
            os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
        mlflow.set_experiment(experiment)
        mlflow.start_run(run_name=run_dir.name)
        mlflow.log_params(config.model_dump(mode="json"))

    def write(self, record: Record) -> None:
        numbers = {name: float(value) for name, value in record.items() if is_number(value)}
        self._mlflow.log_metrics(numbers, step=record["epoch"])

    def close(self) -> None:
        self._mlflow.end_run()


def is_number(value: Any) -> bool:
    """Whether a tracker can plot the value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
