"""The settings of a job with every choice that follows from them, as checks.py makes it, and what they cost.  Pure."""

from dataclasses import dataclass
from pathlib import Path

from launch.core.catalog import Instance
from launch.core.estimate.volume import data_volume, io2_volume
from launch.core.price import CATALOGS, Prices, Volume, usd_per_hour
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


def node_usd(resolved: Resolved, instance: Instance, prices: Prices) -> float:
    """USD per hour of a node on demand; nothing for one of a capacity block, which was paid in advance."""
    return 0.0 if resolved.options.capacity_block else prices.of(instance)


def hourly_usd(
    resolved: Resolved, instance: Instance, data_gib: int, prices: Prices = CATALOGS, usd: float | None = None
) -> float:
    """USD per hour of all nodes with their volumes.  usd: of one node (default: the on-demand price)."""
    node = node_usd(resolved, instance, prices) if usd is None else usd
    nodes = resolved.options.nodes
    disks = nodes * usd_per_hour(Volume(resolved.options.root_gb))
    if resolved.data_volume == "multi-attach":
        disks += usd_per_hour(io2_volume(data_gib))
    if resolved.data_volume == "per-node":
        disks += nodes * usd_per_hour(data_volume(instance, data_gib))
    return nodes * node + disks * prices.storage


def highest_usd(
    resolved: Resolved, instance: Instance, data_gib: int, prices: Prices = CATALOGS, once_usd: float = 0.0
) -> float:
    """USD until the time limit, on demand: spot prices may rise that far.

    once_usd: what the start of a node costs; each restart may replace all of them.
    """
    options = resolved.options
    starts = options.nodes * (1 + options.max_restarts)
    return hourly_usd(resolved, instance, data_gib, prices) * options.max_hours + once_usd * starts
