"""How long nodes copy their data from S3 to a local disk before they train, with --data-s3.  Pure."""

from dataclasses import replace

from launch.core.catalog import Instance
from launch.core.estimate.figure import Figure, figure
from launch.core.estimate.forecast import Forecast
from launch.core.estimate.tables import table
from launch.core.estimate.words import hours
from launch.core.published import Content

UNKNOWN = "each node copies the data from S3 first; how long that takes is not known, and not in the expected time"


def with_copy(guess: Forecast | None, content: Content | None, instance: Instance) -> tuple[Forecast | None, str]:
    """The forecast with the copy in its hours, and a sentence on it.  content: None where it was not counted."""
    if guess is None or content is None:
        return guess, UNKNOWN
    rate = _bytes_per_s(instance)
    value, best, worst = (content.bytes / rate.at(side) / 3600 for side in ("value", "best", "worst"))
    low, high = guess.hours_range
    longer = replace(guess, hours=guess.hours + value, hours_range=(low + best, high + worst))
    words = f"{content.bytes / 1e9:,.1f} GB from S3 first, in {hours(value)} at some {rate.value / 1e6:.0f} MB/s"
    return longer, f"each node copies {words} ({rate.source}), which is in the expected time"


def _bytes_per_s(instance: Instance) -> Figure:
    """Of one node, whose line gives no more."""
    return figure(table("rates")["s3_copy_mb_per_s"]).times(1e6).at_most(instance.network_gbps.peak * 1e9 / 8)
