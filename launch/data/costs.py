"""What publishing costs and how long it takes, from this machine and by an instance, by one formula.  Pure.

USD in us-east-1, from https://docs.aws.amazon.com/ebs/latest/userguide/ebsapi-pricing.html (its examples) and AWS's
price pages for EBS, S3 and traffic, as of 2026-11-23; instances are in infra/instances.yaml.  Measured rates:
tests/bench/RESULTS.md, "Preparing".  AWS's rates: https://docs.aws.amazon.com/ebs/latest/userguide/ebsapi-performance.html
has 100 ms a block and 1,000 blocks a second.  Those marked [E] are estimates.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from launch.core import catalog
from launch.core.catalog import Instance
from launch.core.clock import duration
from launch.core.plan import Fact
from launch.core.price import CATALOGS, Prices, Volume, usd, usd_per_hour
from launch.data.image import BLOCK
from launch.data.options import PublishOptions
from trainer.errors import SettingsError

PUT_BLOCK, GET_BLOCK = 0.006 / 1000, 0.003 / 1000
S3_PUT = 0.005 / 1000
S3_GB_MONTH, SNAPSHOT_GB_MONTH = 0.023, 0.05
# From AWS to the internet; 100 GB per account and month are free, and so is traffic within the region.
OUT_GB, BETWEEN_REGIONS_GB = 0.09, 0.02
# Rate of making the file system and reading everything twice for digests, on a laptop's disk.
LOCAL_BYTES_PER_S = 250e6
IMAGES_PER_VCPU_S = 250.0  # resized to 256 px: ImageNet's, on one core of an AMD EPYC
KEPT_PER_VCPU_S = 2325.0  # many small images: the overhead of an image
IMAGE_BYTES = 110e3  # ImageNet's mean, for images in archives, which cannot be counted
BLOCK_S, BLOCKS_PER_S = 0.1, 1000.0
OBJECTS_PER_S = 300.0  # [E] small objects that one process transfers from or to S3, with many connections
NVME_BYTES_PER_S = 500e6  # [E] making the file system, and reading all twice for its digests
STARTS_S = 240.0  # [E] until an instance has booted, and installed Python and the packages
COMPLETES_S = 120.0  # [E] until AWS has completed a snapshot
GET_OBJECT = 0.0004 / 1000  # USD, as of 2026-11-23
ROOT = Volume(16)  # of an instance
AGAIN = ("start", "fetch", "prepare", "file system", "compare")  # steps on the machine's own disks
# Shares of the source: what is stored after resizing, and the disk space reserved for it.
SHARE, MOST_SHARE = 0.3, 0.5


@dataclass(frozen=True)
class Work:
    """What is to be done."""

    source: int  # bytes in S3
    objects: int  # in S3
    images: int  # to prepare; 0 if they are prepared
    stored: int  # bytes of the shards
    is_resized: bool = True
    to_s3: bool = True
    to_snapshot: bool = True
    verify: str = "all"

    @property
    def blocks(self) -> int:
        return -(-self.stored // BLOCK) + 8 if self.to_snapshot else 0

    @property
    def read_back(self) -> int:
        """Blocks."""
        return min(self.blocks, {"all": self.blocks, "sample": 100, "none": 0}[self.verify])

    @property
    def room(self) -> int:
        """Bytes of disk for the source, the shards and their file system, with a tenth to spare."""
        shards = self.source * MOST_SHARE if self.is_resized and self.images else max(self.source, self.stored)
        return int(1.1 * (self.source + 2 * shards))


def work_of(size: int, objects: int, *, are_archives: bool, is_prepared: bool, resized: bool) -> Work:
    """Estimate the work for a source in S3 from its sizes.  size: bytes."""
    if is_prepared:
        return Work(size, objects, 0, size, is_resized=False)
    images = round(size / IMAGE_BYTES) if are_archives else objects
    shrinks = resized and size / max(1, images) > 2 * IMAGE_BYTES * SHARE
    return Work(size, objects, max(1, images), int(size * SHARE) if shrinks else size, is_resized=shrinks)


@dataclass(frozen=True)
class Machine:
    """Where the work is done."""

    name: str
    vcpus: int
    bytes_per_s: float  # to and from AWS
    disk_bytes_per_s: float
    connections: int
    starts_s: float = 0.0  # until it can begin
    usd_per_hour: float = 0.0  # including its disk
    usd_per_gb: float = 0.0  # from AWS to it


def here(vcpus: int, mbit_s: float, connections: int) -> Machine:
    """This machine, outside AWS."""
    rate = mbit_s * 1e6 / 8
    return Machine("here", vcpus, rate, LOCAL_BYTES_PER_S, connections, usd_per_gb=OUT_GB)


def vcpus() -> int:
    """This machine's."""
    return os.cpu_count() or 1


CONNECTIONS = 64  # of an instance


def machine_of(instance: Instance, hourly: float) -> Machine:
    """A temporary instance.  hourly: its price on demand."""
    rate, price = instance.network_gbps.base * 1e9 / 8, hourly + usd_per_hour(ROOT)
    return Machine(instance.name, instance.vcpus, rate, NVME_BYTES_PER_S, CONNECTIONS, STARTS_S, price)


@dataclass(frozen=True)
class Estimate:
    """Time and cost of the work on a machine."""

    machine: Machine
    seconds: Mapping[str, float] = field(default_factory=dict)  # by step
    once_usd: Mapping[str, float] = field(default_factory=dict)  # by item, all upper bounds
    again_usd: float = 0.0  # the cost of losing the machine

    @property
    def again_s(self) -> float:
        """Seconds of work that are lost with the machine, at most: nothing of it is kept in AWS."""
        return sum(self.seconds[name] for name in AGAIN)

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def total_usd(self) -> float:
        return sum(self.once_usd.values())

    @property
    def figures(self) -> dict[str, object]:
        """For --dry-run=json."""
        return {
            "machine": self.machine.name,
            "seconds": round(self.total_s),
            "usd": round(self.total_usd, 4),
            "seconds_by_step": {name: round(value) for name, value in self.seconds.items()},
            "usd_by_part": {name: round(value, 4) for name, value in self.once_usd.items()},
        }

    @property
    def text(self) -> str:
        """In words: 1 h 20 min, 3.10 USD: fetch 50 min, prepare 20 min, ..."""
        steps = ", ".join(f"{name} {_time(value)}" for name, value in self.seconds.items() if value >= 1)
        parts = ", ".join(f"{name} {value:,.2f}" for name, value in self.once_usd.items() if value >= 0.005)
        return f"{_time(self.total_s)}, {usd(self.total_usd)} once: {steps}" + (f"; USD: {parts}" if parts else "")


def _time(seconds: float) -> str:
    return duration(timedelta(seconds=seconds))


def estimate(work: Work, machine: Machine, before_s: float = 0.0) -> Estimate:
    """Time and cost of the work on a machine, with its steps in sequence.

    before_s: for copying the source to S3 first, if it is not there.
    """
    images_per_s = machine.vcpus * (IMAGES_PER_VCPU_S if work.is_resized else KEPT_PER_VCPU_S)
    # Each connection waits for a block's answer; all together are limited by AWS.
    blocks_per_s = min(machine.connections / BLOCK_S, BLOCKS_PER_S, machine.bytes_per_s / BLOCK)
    uploads = work.stored if work.to_s3 else 0
    seconds = {
        "copy to S3": before_s,
        "start": machine.starts_s,
        "fetch": max(work.source / machine.bytes_per_s, work.objects / OBJECTS_PER_S),
        "prepare": work.images / images_per_s,
        "upload": uploads / machine.bytes_per_s,
        "file system": work.stored / machine.disk_bytes_per_s if work.to_snapshot else 0.0,
        "snapshot": work.blocks / blocks_per_s + (COMPLETES_S if work.blocks else 0.0),
        "compare": work.read_back / blocks_per_s,
    }
    from_aws = (work.source + work.read_back * BLOCK) / 1e9
    once = {
        "requests": work.objects * GET_OBJECT + uploads / 16e6 * S3_PUT,
        "snapshot": work.blocks * PUT_BLOCK + work.read_back * GET_BLOCK,
        "traffic": from_aws * machine.usd_per_gb,
        "instance": (sum(seconds.values()) - before_s) / 3600 * machine.usd_per_hour,
    }
    hours = sum(seconds[name] for name in AGAIN) / 3600
    again = hours * machine.usd_per_hour + work.objects * GET_OBJECT + work.read_back * GET_BLOCK
    return Estimate(machine, seconds, once, again)


TYPES = ("c6id.xlarge", "c6id.2xlarge", "c6id.4xlarge", "c6id.8xlarge", "i4i.4xlarge")
FREE_GB = 4.0  # of a disk, for Python and file system overhead


@dataclass(frozen=True)
class Comparison:
    """Publishing from here and by an instance; instance: None if no type has enough disk."""

    here: Estimate
    instance: Estimate | None

    @property
    def cheaper(self) -> str:
        """here or instance, whichever costs less; at equal cost the faster one."""
        if self.instance is None:
            return "here"
        mine, other = ((round(one.total_usd, 2), one.total_s) for one in (self.here, self.instance))
        return "instance" if other < mine else "here"

    @property
    def rates(self) -> tuple[Fact, ...]:
        """A line for each."""
        rows = [Fact("by_here", self.here.figures, self.here.text, "--by here")]
        if self.instance is not None:
            name = f"--by instance ({self.instance.machine.name})"
            rows.append(Fact("by_instance", self.instance.figures, self.instance.text, name))
        return tuple(rows)


def types_for(chosen: str | None) -> tuple[str, ...]:
    return (chosen,) if chosen else TYPES


def fits(instance: Instance, work: Work) -> bool:
    return (instance.nvme_gb - FREE_GB) * 1e9 >= work.room


def compare(
    options: PublishOptions, work: Work, vcpus: int, prices: Prices = CATALOGS, types: Sequence[str] = (), *,
    is_local: bool = False,
) -> Comparison:  # fmt: skip
    """Estimate both for the parts of this work that the user asked for.

    vcpus: of this machine; types: candidates, of which the cheapest in total is taken;
    is_local: whether the source is on this machine and would have to be copied to S3 first.
    """
    work = replace(work, to_s3=options.to != "snapshot", to_snapshot=options.to != "s3", verify=options.verify)
    mine = here(vcpus, options.upload_mbit_s, options.connections)
    before_s = work.source / mine.bytes_per_s if is_local else 0.0
    other = cheapest(work, prices, types or types_for(options.instance_type), before_s)
    at_home = replace(work, source=0, objects=0) if is_local else work
    return Comparison(estimate(at_home, mine), other)


def cheapest(work: Work, prices: Prices, types: Sequence[str], before_s: float = 0.0) -> Estimate | None:
    found = (catalog.find(name) for name in types)
    estimates = [estimate(work, machine_of(one, prices.of(one)), before_s) for one in found if fits(one, work)]
    return min(estimates, key=lambda one: (round(one.total_usd, 2), one.total_s), default=None)


def no_room(work: Work, chosen: str | None) -> SettingsError:
    """Why no instance can take the work."""
    gb, largest = work.room / 1e9, max(catalog.find(name).nvme_gb for name in TYPES)
    if chosen:
        has = catalog.find(chosen).nvme_gb
        return SettingsError(
            f"--instance-type {chosen}: its local disks have {has:,} GB, and this takes {gb:,.0f}; omit it, and the "
            "cheapest type that has room is taken."
        )
    return SettingsError(
        f"this takes {gb:,.0f} GB of local disk, and the largest instance that launch.data starts has {largest:,}; "
        "publish it from a machine of yours (--by here)."
    )


# ---- the lines of a plan


@dataclass(frozen=True)
class Amounts:
    """What is still to do."""

    stored: int  # bytes of the data set
    upload: int = 0  # bytes to S3
    requests: int = 0  # to S3
    blocks: int = 0  # to the snapshot
    read_back: int = 0  # blocks read from the snapshot
    in_s3: bool = True
    in_snapshot: bool = True


def rates(amounts: Amounts, mbit_s: float) -> tuple[Fact, ...]:
    """A line for each transfer, and one for storage."""
    rows = list[Fact]()
    per_s = mbit_s * 1e6 / 8
    if amounts.in_s3:
        rows.append(_line("s3", "to S3", amounts.upload, amounts.requests * S3_PUT, amounts.upload / per_s, mbit_s))
    if amounts.in_snapshot:
        size = amounts.blocks * BLOCK
        local = amounts.stored / LOCAL_BYTES_PER_S if amounts.blocks else 0.0
        rows.append(_line("snapshot", "to a snapshot", size, amounts.blocks * PUT_BLOCK, local + size / per_s, mbit_s))
    if amounts.read_back:
        rows.append(_reading(amounts.read_back, per_s, mbit_s))
    return (*rows, _storage(amounts))


def _line(name: str, label: str, size: int, once_usd: float, seconds: float, mbit_s: float) -> Fact:
    value = {"bytes": size, "usd": once_usd, "seconds": seconds}
    if not size:
        return Fact(name, value, "is there already", label)
    text = f"{size / 1e9:,.2f} GB: {usd(once_usd)} once, {duration(timedelta(seconds=seconds))} at {mbit_s:g} Mbit/s"
    return Fact(name, value, text, label)


def _reading(blocks: int, per_s: float, mbit_s: float) -> Fact:
    size = blocks * BLOCK
    once, traffic = blocks * GET_BLOCK, size / 1e9 * OUT_GB
    value = {"bytes": size, "usd": once, "most_traffic_usd": traffic, "seconds": size / per_s}
    takes = duration(timedelta(seconds=size / per_s))
    text = (
        f"{size / 1e9:,.2f} GB: {usd(once)} once, {takes} at {mbit_s:g} Mbit/s; outside AWS up to {usd(traffic)} for "
        "traffic, after the month's 100 GB that are free"
    )
    return Fact("read_back", value, text, "to read it back")


def _storage(amounts: Amounts) -> Fact:
    gb = amounts.stored / 1e9
    monthly = gb * (S3_GB_MONTH * amounts.in_s3 + SNAPSHOT_GB_MONTH * amounts.in_snapshot)
    places = [word for word, there in (("S3", amounts.in_s3), ("snapshot", amounts.in_snapshot)) if there]
    return Fact("storage", {"usd_per_month": monthly}, f"{usd(monthly)} a month: {' and '.join(places)}", "kept")


def copying(size: int, *, in_s3: bool, in_snapshot: bool) -> Fact:
    """The price of a copy in another region."""
    traffic = size / 1e9 * BETWEEN_REGIONS_GB * (in_s3 + in_snapshot)
    monthly = size / 1e9 * (S3_GB_MONTH * in_s3 + SNAPSHOT_GB_MONTH * in_snapshot)
    return Fact(
        "copy",
        {"usd": traffic, "usd_per_month": monthly},
        f"{usd(traffic)} once for traffic between regions, {usd(monthly)} a month there",
    )
