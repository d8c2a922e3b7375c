"""Which machine publishes: of which type an instance is, and whether it is an instance at all.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from launch.core import catalog
from launch.core.catalog import Instance
from launch.core.plan import Fact
from launch.core.price import Prices
from launch.data.near.work import Machine, Way, Work, machine_of, way
from trainer.errors import SettingsError

TYPES = ("c6id.2xlarge", "c6id.4xlarge", "c6id.8xlarge", "i4i.4xlarge")
FREE_GB = 4.0  # of a disk, for Python and what a file system keeps


@dataclass(frozen=True)
class Ways:
    """Both ways; instance: None where no type has room."""

    here: Way
    instance: Way | None

    @property
    def cheaper(self) -> str:
        """here, or instance: what costs less, and of two that cost the same, what is done sooner."""
        if self.instance is None:
            return "here"
        mine, other = ((round(one.total_usd, 2), one.total_s) for one in (self.here, self.instance))
        return "instance" if other < mine else "here"

    @property
    def rates(self) -> tuple[Fact, ...]:
        """A line for each way."""
        rows = [Fact("by_here", self.here.figures, self.here.text, "--by here")]
        if self.instance is not None:
            name = f"--by instance ({self.instance.machine.name})"
            rows.append(Fact("by_instance", self.instance.figures, self.instance.text, name))
        return tuple(rows)


def types_for(wanted: str | None) -> tuple[str, ...]:
    return (wanted,) if wanted else TYPES


def fits(instance: Instance, work: Work) -> bool:
    return (instance.nvme_gb - FREE_GB) * 1e9 >= work.room


def ways_of(work: Work, mine: Machine, prices: Prices, types: Sequence[str] = TYPES, *, is_local: bool = False) -> Ways:
    """Both ways for this work.  types: those to choose from, of which the one that costs least in all is taken.

    is_local: whether the source is on this machine, and would have to go to S3 first.
    """
    other = cheapest(work, prices, types, work.source / mine.bytes_per_s if is_local else 0.0)
    at_home = replace(work, source=0, objects=0) if is_local else work
    return Ways(way(at_home, mine), other)


def cheapest(work: Work, prices: Prices, types: Sequence[str], before_s: float = 0.0) -> Way | None:
    found = (catalog.find(name) for name in types)
    ways = [way(work, machine_of(one, prices.of(one)), before_s) for one in found if fits(one, work)]
    return min(ways, key=lambda one: (round(one.total_usd, 2), one.total_s), default=None)


def no_room(work: Work, wanted: str | None) -> SettingsError:
    """Why no instance can take the work."""
    gb, largest = work.room / 1e9, max(catalog.find(name).nvme_gb for name in TYPES)
    if wanted:
        has = catalog.find(wanted).nvme_gb
        return SettingsError(
            f"--instance-type {wanted}: its local disks have {has:,} GB, and this takes {gb:,.0f}; omit it, and the "
            "cheapest type that has room is taken."
        )
    return SettingsError(
        f"this takes {gb:,.0f} GB of local disk, and the largest instance that launch.data starts has {largest:,}; "
        "publish it from a machine of yours (--by here)."
    )
