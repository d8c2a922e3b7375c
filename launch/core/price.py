"""What instances and EBS volumes cost in a region, and how amounts are written.  Pure.

The catalog has the instances' prices in us-east-1; pricelist.py asks AWS for those of other regions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from launch.core.catalog import Instance

HOURS_PER_MONTH = 730

# us-east-1, USD per month, from https://aws.amazon.com/ebs/pricing/ as of 2026-11-21.
GIB = {"gp3": 0.08, "io2": 0.125}
GP3_IOPS, GP3_FREE_IOPS = 0.005, 3000
GP3_MIB_PER_S, GP3_FREE_MIB_PER_S = 0.04, 125
IO2_IOPS = 0.065  # up to 32,000
# Whether to pay for a rate of volume initialization from the snapshot.
Pay = Literal["auto", "always", "never"]
FILL_VOLUMES = (
    "pay AWS to fill data volumes from their snapshot at 100-300 MiB/s; auto: if that saves more than it costs"
)
# Volume initialization: once, per GiB of data in the snapshot and MiB/s of the rate.
INITIALIZATION = 0.000012

CATALOGS_REGION = "us-east-1"


@dataclass(frozen=True)
class Prices:
    """The prices that a plan counts with."""

    usd_per_hour: Mapping[str, float] = field(default_factory=dict)  # by instance type, on demand
    storage: float = 1.0  # EBS's prices as a multiple of those in us-east-1
    source: str = "from the catalog, for us-east-1"  # in words
    are_known: bool = True  # whether they are those of the job's region
    spot: Mapping[str, float] = field(default_factory=dict)  # by instance type, now; only those that AWS reported

    def of(self, instance: "Instance") -> float:
        """USD per hour on demand; 0 if it is not known."""
        return self.usd_per_hour.get(instance.name, instance.usd_per_hour)

    def knows(self, instance: "Instance") -> bool:
        return self.of(instance) > 0


CATALOGS = Prices()


@dataclass(frozen=True)
class Volume:
    """What the price of an EBS volume depends on."""

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


def initialization_usd(gib: float, mib_per_s: int) -> float:
    """USD for initializing a volume at this rate.  gib: data in the snapshot."""
    return gib * mib_per_s * INITIALIZATION


def usd(amount: float) -> str:
    """2.4 -> '2.40 USD'."""
    return f"{amount:,.2f} USD"
