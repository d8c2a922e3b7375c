"""The EBS volumes that a job's data are read from: their size, and how fast they are.  Pure."""

from dataclasses import dataclass, replace

from launch.core.catalog import Instance
from launch.core.price import Volume

IO2_LEAST_GIB = 4
# Of an SSD volume, the most that AWS counts as one operation:
# https://docs.aws.amazon.com/ebs/latest/userguide/ebs-io-characteristics.html
OPERATION_BYTES = 256 * 2**10
# Of io2: https://docs.aws.amazon.com/ebs/latest/userguide/provisioned-iops.html
IO2_MIB_PER_OPERATION, IO2_MOST_MIB_PER_S = 0.256, 4000


@dataclass(frozen=True)
class Promise:
    """What a volume gives at most.  is_shared: to all nodes together.

    https://docs.aws.amazon.com/ebs/latest/userguide/ebs-multi-attach-perf.html
    """

    mib_per_s: float
    operations_per_s: float
    is_shared: bool = False

    def bytes_per_s(self, image_bytes: float, nodes: int) -> float:
        """The rate at which a node can read images of that size, each of which takes one operation or more."""
        whole = min(self.mib_per_s * 2**20, self.operations_per_s * min(OPERATION_BYTES, image_bytes))
        return whole / nodes if self.is_shared else whole

    def limits_operations(self, image_bytes: float) -> bool:
        """Whether it ends with its operations, not with its bytes."""
        return self.operations_per_s * min(OPERATION_BYTES, image_bytes) < self.mib_per_s * 2**20


def promise(volume: Volume) -> Promise:
    """The speed that AWS promises for it.  io2 has one attribute for both, and is for all nodes here."""
    if volume.kind == "io2":
        most = min(IO2_MOST_MIB_PER_S, IO2_MIB_PER_OPERATION * volume.iops)
        return Promise(most, volume.iops, is_shared=True)
    return Promise(volume.throughput_mib_per_s, volume.iops)


def data_volume(instance: Instance, gib: int) -> Volume:
    """A gp3 volume as fast as the instance can read in bursts.

    Limits: 3,000 to 80,000 I/O operations a second, at most 500 per GiB beyond the first 3,000; 125 to 2,000 MiB/s,
    at most a quarter per operation: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
    """
    mib_per_s = int(min(2000, max(125, instance.ebs_mb_per_s.peak * 1e6 / 2**20)))
    iops = max(3000, min(mib_per_s * 4, 500 * gib or mib_per_s * 4))  # 0 GiB: not known yet
    return replace(Volume(gib), throughput_mib_per_s=min(mib_per_s, iops // 4), iops=iops)


def io2_volume(gib: int) -> Volume:
    """One volume that all nodes read; io2 allows 500 operations a second per GiB, and has at least 4.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html, Size.  gib: 0 if it is not known yet.
    """
    gib = max(IO2_LEAST_GIB, gib) if gib else 0
    return Volume(gib, kind="io2", iops=max(100, min(16_000, 500 * gib or 16_000)), throughput_mib_per_s=0)
