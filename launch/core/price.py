"""What EBS volumes cost, and how amounts are written.  Instances' prices are in the catalog.  Pure."""

from dataclasses import dataclass

HOURS_PER_MONTH = 730

# us-east-1, USD per month, from https://aws.amazon.com/ebs/pricing/ as remembered on 2026-11-21.
GIB = {"gp3": 0.08, "io2": 0.125}
GP3_IOPS, GP3_FREE_IOPS = 0.005, 3000
GP3_MIB_PER_S, GP3_FREE_MIB_PER_S = 0.04, 125
IO2_IOPS = 0.065  # up to 32,000


@dataclass(frozen=True)
class Volume:
    """An EBS volume, as far as its price goes."""

    gib: int
    kind: str = "gp3"
    iops: int = GP3_FREE_IOPS
    throughput_mib_per_s: int = GP3_FREE_MIB_PER_S


def usd_per_hour(volume: Volume) -> float:
    """USD per hour of a volume; nothing for one of 0 GiB."""
    if volume.gib == 0:
        return 0.0
    month = volume.gib * GIB[volume.kind]
    if volume.kind == "gp3":
        month += max(0, volume.iops - GP3_FREE_IOPS) * GP3_IOPS
        month += max(0, volume.throughput_mib_per_s - GP3_FREE_MIB_PER_S) * GP3_MIB_PER_S
    else:
        month += volume.iops * IO2_IOPS
    return month / HOURS_PER_MONTH


def usd(amount: float) -> str:
    """2.4 -> '2.40 USD'."""
    return f"{amount:,.2f} USD"
