"""A script of the user's own as a training.  Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from launch.core.training.base import Training
from trainer.contract import SAGEMAKER_HYPERPARAMETER
from trainer.errors import SettingsError
from trainer.script.config import ScriptConfig, to_words
from trainer.script.environment import DATA_WORD

if TYPE_CHECKING:
    from launch.core.catalog import Instance
    from launch.core.estimate.forecast import Forecast
    from launch.core.estimate.training import Images
    from launch.core.estimate.volume import NewVolume
    from launch.core.source.find import Source

ENTRY = ("-m", "trainer.script")
# What scripts call their numbers; a launcher that must know them beforehand has a flag for others.
LIKELY = (
    "epoch", "step", "loss", "accuracy", "learning_rate", "train_loss", "train_accuracy", "val_loss", "val_accuracy",
    "eval_loss", "eval_accuracy", "test_loss", "test_accuracy", "perplexity", "epoch_s", "images_per_s",
    "samples_per_s", "tokens_per_s",
)  # fmt: skip


@dataclass(frozen=True)
class Script(Training):
    """A script with its arguments.

    arguments: of python, the file or -m and the module first; cwd: where in its source it starts; requirements: the
    file there that lists packages; variables: NAME=VALUE of its environment; source: None where it is in the job's
    folder already; digest: of its archive, which the machine has as `archive` and unpacks below `work`, both None where
    the script runs where it is.
    """

    arguments: tuple[str, ...]
    processes_by: Literal["torchrun", "one"] = "torchrun"
    max_silence_s: float = 3600.0
    max_output_mb: int = 200
    cwd: str = "."
    requirements: str = ""
    source: Source | None = None
    digest: str = ""
    archive: Path | None = None
    work: Path | None = None
    run_dir: Path | None = None
    data_dir: Path | None = None
    job: str = ""
    variables: tuple[str, ...] = ()
    expected_s: float | None = None

    @property
    def words(self) -> tuple[str, ...]:
        return (*ENTRY, *to_words(self._config))

    @property
    def _config(self) -> ScriptConfig:
        is_sent = self.archive is not None
        return ScriptConfig(
            words=self.arguments,
            run_dir=self.run_dir or Path(),
            data_dir=self.data_dir,
            source=self.archive,
            digest=self.digest if is_sent else "",
            work=self.work,
            cwd=self.cwd if is_sent else ".",
            requirements=self.requirements if is_sent else "",
            processes=self.processes_by,
            max_silence_s=self.max_silence_s,
            max_output_mb=self.max_output_mb,
            job=self.job,
            variables=self.variables,
            restarts=0,  # the machine knows them
        )

    @property
    def shown(self) -> str:
        return shlex.join(self.arguments)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {SAGEMAKER_HYPERPARAMETER: list(to_words(self._config))}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"script": self.arguments, "variables": self.variables}

    @property
    def record(self) -> dict[str, Any]:
        many = 2 if self.arguments[0] == "-m" else 1
        return {
            "script": " ".join(self.arguments[:many]),
            "args": list(self.arguments[many:]),
            "processes": self.processes_by,
            "variables": list(self.variables),
            "data_dir": None if self.data_dir is None else str(self.data_dir),
        }

    @property
    def label(self) -> str:
        """The script's name: train, of src/train.py, of package.train."""
        first, *rest = self.arguments
        return rest[0].rpartition(".")[2] if first == "-m" else re.sub(r"\.py$", "", Path(first).name)

    def processes(self, given: int | None, gpus: int) -> int:
        if self.processes_by == "torchrun":
            return super().processes(given, gpus)
        if given not in (None, 1):
            raise SettingsError(
                f"--processes one starts one process on each node, which starts its own, and --nproc-per-node {given} "
                "starts more; leave one of them out."
            )
        return 1

    def check_data(self, *, has_data: bool) -> None:
        if not has_data and any(DATA_WORD in word for word in self.arguments):
            raise SettingsError(f"an argument of the script names {DATA_WORD}, and this job has no data; give --data.")

    def check_ranks(self, nodes: int, processes: int) -> None:
        """A script takes any number."""

    def check_replicas(self, replicas: int) -> None:
        """A script takes any number."""

    @property
    def starts_own(self) -> bool:
        return self.processes_by == "one"

    def on_gpus(self) -> Script:
        return self

    def at(self, **folders: Path | None) -> Script:
        known = {name: path for name, path in folders.items() if name in ("run_dir", "data_dir")}
        return replace(self, **known)  # type: ignore[arg-type]  # paths, both

    def called(self, job: str) -> Script:
        return replace(self, job=job)

    def sent(self, archive: Path, work: Path) -> Script:
        return replace(self, archive=archive, work=work)

    @property
    def folders(self) -> dict[str, Path]:
        return {} if self.data_dir is None else {"data_dir": self.data_dir}

    @property
    def metrics(self) -> tuple[str, ...]:
        return LIKELY

    @property
    def mlflow(self) -> str | None:
        return self.label

    def expect(
        self,
        instance: Instance,
        nodes: int,
        *,
        gpus: int | None = None,
        on_ebs: bool,
        images: Images | None = None,
        volume: NewVolume | None = None,
    ) -> tuple[Forecast | None, str]:
        return None, ""  # launch.core.earlier knows more


def script_of(config: ScriptConfig) -> Script:
    """The script that a rank's command describes, without what only its launcher knew."""
    return Script(
        arguments=config.words,
        processes_by=config.processes,
        max_silence_s=config.max_silence_s,
        cwd=config.cwd,
        requirements=config.requirements,
        digest=config.digest,
        archive=config.source,
        work=config.work,
        run_dir=config.run_dir,
        data_dir=config.data_dir,
        job=config.job,
        variables=config.variables,
        max_output_mb=config.max_output_mb,
    )
