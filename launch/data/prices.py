"""What publishing costs, and how long it takes.  Pure.

USD in us-east-1, from https://docs.aws.amazon.com/ebs/latest/userguide/ebsapi-pricing.html (its examples) and AWS's
price pages for EBS, S3 and traffic, as of 2026-11-23.
"""

from dataclasses import dataclass
from datetime import timedelta

from launch.core.clock import duration
from launch.core.plan import Fact
from launch.core.price import usd
from launch.data.image import BLOCK

PUT_BLOCK, GET_BLOCK = 0.006 / 1000, 0.003 / 1000
S3_PUT = 0.005 / 1000
S3_GB_MONTH, SNAPSHOT_GB_MONTH = 0.023, 0.05
# From AWS to the internet; 100 GB per account and month are free, and so is traffic within the region.
OUT_GB, BETWEEN_REGIONS_GB = 0.09, 0.02
# Rate of making the file system and reading everything twice for digests, on a laptop's disk.
LOCAL_BYTES_PER_S = 250e6


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
