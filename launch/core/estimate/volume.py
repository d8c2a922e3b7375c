"""Volumes that are made from a snapshot when nodes start: how soon they are full, at what price, how fast then.  Pure.

Until a block has come from S3, a read waits for it.  AWS says of its default rate only that it fluctuates; a rate of
100 to 300 MiB/s can be paid for, which is billed in full as soon as the volume is there, by the data in the snapshot
and the rate; the request fails if AWS has no capacity for it, or beyond the quota.  AWS prices "tiers" per GiB, and
lists none on that page: the price is taken to be proportional to the rate, as at 300 MiB/s.
https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html
"""

from dataclasses import dataclass

from launch.core.estimate.figure import Figure, exactly, figure
from launch.core.estimate.tables import table
from launch.core.price import Pay, initialization_usd
from launch.core.volumes import Promise

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
