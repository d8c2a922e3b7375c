"""Our image classifier as a training: what the trainer's settings mean for a launcher.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from launch.core.training.base import Training
from trainer import datasets
from trainer.config import TrainConfig, check_batches
from trainer.errors import SettingsError
from trainer.settings.argparser import as_text
from trainer.settings.checks import check
from trainer.settings.flags import build, to_argv

if TYPE_CHECKING:
    from launch.core.catalog import Instance
    from launch.core.estimate.forecast import Forecast
    from launch.core.estimate.training import Images
    from launch.core.estimate.volume import NewVolume
    from launch.core.manifest import Content

ENTRY = ("-m", "trainer")
# The numbers in the trainer's [METRIC] lines that a chart is made of.
METRICS = (
    "epoch", "updates", "learning_rate", "train_loss", "train_top1", "eval_loss", "eval_top1", "eval_top5",
    "images_per_s", "epoch_s", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms",
    "optimizer_ms", "all_reduce_gb_per_s", "peak_memory_mib", "gpu_utilization_percent",
)  # fmt: skip


def classifier_of(values: Mapping[str, Any]) -> Classifier:
    """Our trainer with these settings, by name; the others are its own.  Raises SettingsError."""
    (config,) = build(values, [TrainConfig])
    return Classifier(cast(TrainConfig, config))


@dataclass(frozen=True)
class Classifier(Training):
    """The trainer with its settings.  Raises SettingsError where they contradict each other."""

    config: TrainConfig

    def __post_init__(self) -> None:
        check(self.config)

    @property
    def words(self) -> tuple[str, ...]:
        return (*ENTRY, *to_argv(self.config))

    @property
    def shown(self) -> str:
        return " ".join(to_argv(self.config))

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {name.replace("_", "-"): as_text(value) for name, value in self.config.changed.items()}

    @property
    def settings(self) -> Mapping[str, Any]:
        return dict(self.config)

    @property
    def record(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json")

    @property
    def label(self) -> str:
        return f"{self.config.dataset}-{self.config.model}"

    def processes(self, given: int | None, gpus: int) -> int:
        return given or 1 if self.config.strategy == "dp" else super().processes(given, gpus)

    def check_ranks(self, nodes: int, processes: int) -> None:
        strategy, ranks = self.config.strategy, nodes * processes
        if strategy in ("dp", "single") and ranks > 1:
            raise SettingsError(
                f"--strategy {strategy} trains in one process, not {ranks}; give --nodes 1 --nproc-per-node 1, or "
                "--strategy ddp."
            )
        check_batches(self.config, ranks)

    def check_replicas(self, replicas: int) -> None:
        check_batches(self.config, replicas)

    @property
    def strategy(self) -> str:
        return self.config.strategy

    def on_gpus(self) -> Classifier:
        return self if self.config.device == "cpu" else self._with(device="cuda")

    @property
    def device(self) -> str:
        return self.config.device

    @property
    def health_check(self) -> bool:
        return self.config.health_check

    def at(self, **folders: Path | None) -> Classifier:
        if "cache_dir" in self.config.model_fields_set:  # the user's counts
            folders = {name: path for name, path in folders.items() if name != "cache_dir"}
        return self._with(**folders)

    def _with(self, **settings: Any) -> Classifier:
        return replace(self, config=self.config.model_copy(update=settings))

    @property
    def run_dir(self) -> Path | None:
        return self.config.run_dir

    @property
    def checkpoint_dir(self) -> Path | None:
        return self.config.checkpoint_dir

    @property
    def init_from(self) -> Path | None:
        return self.config.init_from

    @property
    def folders(self) -> dict[str, Path]:
        found = {"init_from": self.config.init_from, "checkpoint_dir": self.config.checkpoint_dir}
        if datasets.reads_data_dir(self.config.dataset):
            found["data_dir"] = self.config.data_dir
        return {name: path for name, path in found.items() if path is not None}

    @property
    def dataset(self) -> str:
        return self.config.dataset

    @property
    def data_dir(self) -> Path | None:
        return self.config.data_dir if "data_dir" in self.config.model_fields_set else None

    @property
    def data_url(self) -> str | None:
        return self.config.data_url

    @property
    def reads_folder(self) -> bool:
        return datasets.is_folder(self.config.dataset)

    @property
    def needs_data(self) -> bool:
        return datasets.needs_data(self.config.dataset)

    @property
    def downloads(self) -> bool:
        return datasets.downloads(self.config.dataset)

    @property
    def trackers(self) -> tuple[str, ...]:
        return tuple(name for name in ("tensorboard", "wandb", "mlflow") if getattr(self.config, name))

    @property
    def mlflow(self) -> str | None:
        return self.config.mlflow

    @property
    def metrics(self) -> tuple[str, ...]:
        return METRICS

    @property
    def epochs(self) -> int | None:
        return self.config.epochs

    @property
    def diverged_at(self) -> float:
        return 3.0

    def read_gib(
        self, instance: Instance, nodes: int, *, gpus: int | None = None, content: Content | None = None
    ) -> float | None:
        from launch.core.quote import read_gib

        return read_gib(self.config, instance, nodes, gpus=gpus, content=content)

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
        from launch.core.quote import expect

        return expect(self.config, instance, nodes, gpus=gpus, on_ebs=on_ebs, images=images, volume=volume)
