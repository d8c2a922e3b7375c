"""EBS volumes: size, speed, and the time of a data volume's initialization from a snapshot.  Pure."""

from dataclasses import dataclass, replace

from launch.core.catalog import Instance
from launch.core.estimate.formulas import Figure, exactly, figure
from launch.core.estimate.rates import table
from launch.core.price import Pay, Volume, initialization_usd

IO2_LEAST_GIB = 4
# The most that counts as one I/O operation of an SSD volume:
# https://docs.aws.amazon.com/ebs/latest/userguide/ebs-io-characteristics.html
OPERATION_BYTES = 256 * 2**10
# Of io2: https://docs.aws.amazon.com/ebs/latest/userguide/provisioned-iops.html
IO2_MIB_PER_OPERATION, IO2_MOST_MIB_PER_S = 0.256, 4000


@dataclass(frozen=True)
class Promise:
    """The maximum rates of a volume.  is_shared: for all nodes together.

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
        """Whether operations limit it before bytes do."""
        return self.operations_per_s * min(OPERATION_BYTES, image_bytes) < self.mib_per_s * 2**20


def promise(volume: Volume) -> Promise:
    """The provisioned rates of a volume.  io2 has one attribute for both, and is shared by all nodes."""
    if volume.kind == "io2":
        most = min(IO2_MOST_MIB_PER_S, IO2_MIB_PER_OPERATION * volume.iops)
        return Promise(most, volume.iops, is_shared=True)
    return Promise(volume.throughput_mib_per_s, volume.iops)


ROOT_MIB_PER_S = 400  # writes the 20 GB of an unpacked image in 50 s; gp3's 125 MiB/s take 160 s, and 400 1.5 cents/h


def root_volume(gib: int) -> Volume:
    """The gp3 volume of a node on which its image is unpacked.

    A quarter of its 3,000 operations a second allows 750 MiB/s:
    https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
    """
    return Volume(gib, throughput_mib_per_s=ROOT_MIB_PER_S)


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
    """A new data volume, of each node or of all nodes together."""

    mib_per_s: int | None = None  # the paid rate of initialization; None: AWS's default
    data_gib: float = 0.0  # in the snapshot; 0 if not known, then the data set's size counts
    promise: Promise | None = None  # once initialized; None: more than its nodes can read

    @property
    def is_shared(self) -> bool:
        """Whether all nodes read the same volume."""
        return self.promise is not None and self.promise.is_shared

    @property
    def bytes_per_s(self) -> Figure:
        """The rate of its initialization."""
        return lazy_bytes_per_s() if self.mib_per_s is None else exactly(float(self.mib_per_s * MIB))

    def full_after_s(self, data_set_gib: float, bytes_per_s: float, boot_s: float) -> float:
        """Seconds from the training's start to the end of initialization.

        A paid rate applies from the volume's creation.  AWS does not document what its default does before the first
        read, so the time until then does not count.
        """
        whole_s = (self.data_gib or data_set_gib) * 2**30 / bytes_per_s
        return whole_s if self.mib_per_s is None else max(0.0, whole_s - boot_s)


@dataclass(frozen=True)
class Initialization:
    """The initialization of the data volumes."""

    images_per_s: float  # of all volumes together until then
    full_s: float  # seconds from the training's start to its end
    lost_s: float  # what it adds to the job
    volume: NewVolume


def lazy_bytes_per_s() -> Figure:
    """The rate of data that are still in S3, without a paid rate of initialization."""
    return figure(table("rates")["lazy_volume_mib_per_s"]).times(MIB)


def rate_for(nodes: int) -> int | None:
    """MiB/s of initialization that the quota allows each volume; None if that many nodes exceed it."""
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
    """MiB/s to pay for, if the user asks for it or if it saves more of the node's price than it costs; else None.

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
