"""EBS volumes that data are read from: their size and speed, and how soon one made from a snapshot is full.  Pure."""

from dataclasses import dataclass, replace

from launch.core.catalog import Instance
from launch.core.estimate.formulas import Figure, exactly, figure
from launch.core.estimate.rates import table
from launch.core.price import Pay, Volume, initialization_usd

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


MIB = 2**20
# Quota "EBS: provisioned rate for volume initialization" of a region, and the range of one volume, in MiB/s.
QUOTA, RANGE = 5000, (100, 300)


@dataclass(frozen=True)
class NewVolume:
    """The volume of each node, or that of all.  mib_per_s: the rate that is paid for; None: AWS's default.

    data_gib: in the snapshot; 0 where that is not known, and the data set's own size counts.  promise: what it gives
    once it is full; None: more than its nodes can read.
    """

    mib_per_s: int | None = None
    data_gib: float = 0.0
    promise: Promise | None = None

    @property
    def is_shared(self) -> bool:
        """Whether all nodes read the same one."""
        return self.promise is not None and self.promise.is_shared

    @property
    def bytes_per_s(self) -> Figure:
        """At which it is filled."""
        return lazy_bytes_per_s() if self.mib_per_s is None else exactly(float(self.mib_per_s * MIB))

    def full_after_s(self, data_set_gib: float, bytes_per_s: float, boot_s: float) -> float:
        """Seconds from the training's start.

        A promised rate holds from the volume's creation on.  What AWS's default does before anything is read is not
        documented, so that nothing counts.
        """
        whole_s = (self.data_gib or data_set_gib) * 2**30 / bytes_per_s
        return whole_s if self.mib_per_s is None else max(0.0, whole_s - boot_s)


@dataclass(frozen=True)
class Filling:
    """images_per_s: what all volumes give together until they are full; full_s: seconds from the training's start.

    lost_s: what that adds to the job.
    """

    images_per_s: float
    full_s: float
    lost_s: float
    volume: NewVolume


def lazy_bytes_per_s() -> Figure:
    """The rate at which a volume gives data that are still in S3, where no rate is paid for."""
    return figure(table("rates")["lazy_volume_mib_per_s"]).times(MIB)


def rate_for(nodes: int) -> int | None:
    """MiB/s at which each volume can be filled, or None if that many nodes exceed the quota."""
    low, high = RANGE
    share = QUOTA // nodes
    return None if share < low else min(high, share)


def rate_paid(
    pay: Pay,
    data_gib: float,
    nodes: int,
    usd_per_hour: float,
    storage: float = 1.0,
    read_gib: float | None = None,
) -> int | None:
    """MiB/s for each volume, if that is wanted, or if the time of its node that it saves is worth its price; else None.

    data_gib: in the snapshot, which is what AWS bills; read_gib: what the job reads of it on a node, None where that is
    not known.  usd_per_hour: of one node; storage: EBS's prices, as a multiple of those in us-east-1.
    """
    rate = rate_for(nodes)
    if rate is None or pay != "auto":
        return None if pay == "never" else rate
    needed_gib = data_gib if read_gib is None else min(data_gib, read_gib)
    saved_s = needed_gib * 2**30 * (1 / lazy_bytes_per_s().value - 1 / (rate * MIB))
    price = initialization_usd(data_gib, rate) * storage
    return None if price > saved_s / 3600 * usd_per_hour else rate
