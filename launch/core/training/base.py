"""What backends ask of a training, whichever it is.  Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trainer.errors import SettingsError

if TYPE_CHECKING:  # --help does not need them
    from launch.core.catalog import Instance
    from launch.core.estimate.forecast import Forecast
    from launch.core.estimate.training import Images
    from launch.core.estimate.volume import NewVolume
    from launch.core.manifest import Content
    from launch.core.source.find import Source


class Training(ABC):
    """A training: the command of each rank, its folders and data, and what is known of its time.

    A property that a kind of training does not have says so: None, False or empty.
    """

    # ---- its command

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """The command of a rank, after `python` or torchrun's flags: -m trainer, or -m trainer.script, with flags."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """The same for a reader, without what the launcher adds."""

    @property
    @abstractmethod
    def hyperparameters(self) -> dict[str, Any]:
        """The same as SageMaker's hyperparameters: by the names of the flags, or the words in one."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Everything that the user has said, by name, to be looked through for secrets."""

    @property
    @abstractmethod
    def record(self) -> dict[str, Any]:
        """The same as JSON has it, for the record of a run: what makes two runs alike or different."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Two or three words for the name of a job that has none: imagenet-resnet18."""

    # ---- its processes

    def processes(self, given: int | None, gpus: int) -> int:
        """The number of processes that are started on a node.  given: by the user; gpus: of the node.

        Raises SettingsError for a number that cannot be.
        """
        return given or max(1, gpus)

    @abstractmethod
    def check_ranks(self, nodes: int, processes: int) -> None:
        """Raises SettingsError where the training cannot be shared among so many processes on each of `nodes`."""

    @abstractmethod
    def check_replicas(self, replicas: int) -> None:
        """Raises SettingsError where an update cannot be shared among so many GPUs, or CPU ranks."""

    @property
    def strategy(self) -> str:
        """How its processes share an update, where that says how many GPUs a process has: dp, single or ddp."""
        return "ddp"

    @property
    def starts_own(self) -> bool:
        """Whether each of its processes starts others, so that only it knows on how many GPUs it trains."""
        return False

    @abstractmethod
    def on_gpus(self) -> Self:
        """The training for machines with GPUs, on which it must not fall back to the CPU: slow, and billed alike."""

    @property
    def device(self) -> str:
        """auto, cuda or cpu."""
        return "auto"

    @property
    def health_check(self) -> bool:
        """Whether the ranks check their machines first."""
        return False

    # ---- its folders

    @abstractmethod
    def at(self, **folders: Path | None) -> Self:
        """The training with these folders: run_dir, data_dir, cache_dir, init_from or checkpoint_dir."""

    def called(self, job: str) -> Self:
        """The training with its job's name, if it takes one."""
        return self

    def sent(self, archive: Path, work: Path) -> Self:
        """The training where its source, if it has one, is `archive`, to be unpacked below `work`."""
        return self

    @property
    @abstractmethod
    def run_dir(self) -> Path | None:
        """Where its results go; None where a launcher decides."""

    @property
    def checkpoint_dir(self) -> Path | None:
        """Where it saves, if not in its run folder."""
        return None

    @property
    def init_from(self) -> Path | None:
        """The weights that it begins with."""
        return None

    @property
    def folders(self) -> dict[str, Path]:
        """The folders on this machine that it reads or writes beside its run folder, by their names for at()."""
        return {}

    @property
    def source(self) -> Source | None:
        """The user's code, which machines that do not share this one's disk need."""
        return None

    @property
    def cwd(self) -> str:
        """Where in its source it starts."""
        return "."

    @property
    def digest(self) -> str:
        """Of the archive of its source; empty without one."""
        return ""

    # ---- its data

    @property
    def dataset(self) -> str:
        """The name of its data set; empty where only the script knows."""
        return ""

    @property
    def data_dir(self) -> Path | None:
        """The folder with its data on this machine, if the user gave one."""
        return None

    @property
    def data_url(self) -> str | None:
        """Where in S3 it reads its shards by itself."""
        return None

    def check_data(self, *, has_data: bool) -> None:  # noqa: B027  # only a script's command can
        """Raises SettingsError where its command names a folder of data, and there will be none."""

    @property
    def reads_folder(self) -> bool:
        """Whether its data are a folder of images, which is kept on a volume."""
        return False

    @property
    def needs_data(self) -> bool:
        """Whether it cannot start without data that somebody provides."""
        return False

    @property
    def downloads(self) -> bool:
        """Whether it fetches its data from the internet where they are not provided."""
        return False

    # ---- its properties

    @property
    def trackers(self) -> tuple[str, ...]:
        """The trackers among tensorboard, wandb and mlflow that it logs to, and needs the packages of."""
        return ()

    @property
    def mlflow(self) -> str | None:
        """The MLflow experiment that it logs to."""
        return None

    @property
    @abstractmethod
    def metrics(self) -> tuple[str, ...]:
        """The names in its [METRIC] lines, or those that are likely there; SageMaker needs them before the job."""

    # ---- its time

    @property
    def epochs(self) -> int | None:
        """How many it trains for, where that is known."""
        return None

    @property
    def diverged_at(self) -> float:
        """How many times its lowest a training loss is that means no good any more; 0 where a loss may be anything."""
        return 0.0

    @property
    def expected_s(self) -> float | None:
        """The seconds that its user expects it to take."""
        return None

    def check_limit(self, max_hours: float) -> None:
        """Raises SettingsError for a time limit that ends the training before the time that its user expects."""
        if self.expected_s is not None and self.expected_s > max_hours * 3600:
            raise SettingsError(
                f"--expected-hours {self.expected_s / 3600:g} is more than --max-hours {max_hours:g}, at which the job "
                "is ended; raise --max-hours."
            )

    @abstractmethod
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
        """The forecast, or None and why there is none.  See launch.core.quote.expect()."""

    def read_gib(
        self, instance: Instance, nodes: int, *, gpus: int | None = None, content: Content | None = None
    ) -> float | None:
        """The GiB that a node reads to train; None where that is not known.  See launch.core.quote.read_gib()."""
        return None
