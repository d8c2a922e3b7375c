"""The settings of a job with every choice that follows from them, as launch.ec2.checks makes it.  Pure."""

from dataclasses import dataclass
from pathlib import Path

from launch.core.catalog import Instance
from launch.core.training.base import Training
from launch.ec2.options import Ec2Options

# Where the nodes have data and the run folder, in the container; see infra/ec2/boot.sh.
DATA_DIR, RUN_DIR, CACHE_DIR = Path("/data"), Path("/job/run"), Path("/cache")
# And the source of a script, and the folder in which it is unpacked.
WORK_DIR = Path("/job/source")
ARCHIVE = WORK_DIR / "source.tar.gz"


@dataclass(frozen=True)
class Resolved:
    """The options, with every choice that follows from them made.

    data_in_s3: the folder there that nodes read; warnings: about settings, as sentences.
    """

    options: Ec2Options
    instances: tuple[Instance, ...]
    train: Training
    data_volume: str  # per-node, multi-attach or none
    data_in_s3: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def detaches(self) -> bool:
        return self.options.detach or not self.options.wait

    @property
    def streams(self) -> bool:
        """Whether the training itself reads shards from S3."""
        return self.data_in_s3 is not None and self.options.data_s3 is None

    @property
    def brings_data(self) -> bool:
        """Whether the nodes get data from a snapshot or from S3."""
        return self.data_volume != "none" or self.options.data_s3 is not None

    def nproc(self, instance: Instance) -> int:
        """Processes on one node of a type."""
        return self.train.processes(self.options.nproc_per_node, instance.gpus)


def in_container(resolved: Resolved) -> Training:
    """The training as it runs on the nodes, with the folders where boot.sh mounts them."""
    train = resolved.train.sent(ARCHIVE, WORK_DIR).at(run_dir=RUN_DIR)
    if resolved.streams:
        return train.at(cache_dir=CACHE_DIR)
    return train.at(data_dir=DATA_DIR) if resolved.brings_data else train
