"""What costs money and should not, in every place where that can be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch.console.world import Place, World
from launch.core.backend import all_with

HOLDS_S = 30.0


@dataclass(frozen=True)
class LeakRow:
    """A job that has something which may cost money."""

    on: str
    job: str
    region: str
    is_leak: bool
    why: str
    usd_per_hour: float
    resources: Sequence[Mapping[str, str]]  # the backend's columns
    remove: str  # the command that removes all of it; empty if the toolkit must not


def leaks(world: World) -> dict[str, object]:
    """What all jobs cost now: leaks first, the most expensive first; and the backends that launch.doctor examines."""
    found, left_out, is_awaited = world.everywhere("leaks", _asked, HOLDS_S)
    rows = sorted(found, key=lambda row: (not row.is_leak, -row.usd_per_hour))
    examined = all_with(lambda one: bool(one.examination))
    return {"jobs": rows, "left_out": left_out, "examined": examined, "is_awaited": is_awaited}


def _asked(place: Place) -> tuple[list[LeakRow], str]:
    jobs, options = place.asked("leaks")
    found, is_complete = jobs.leaks(options)
    rows = []
    for leak in found:
        there = Place(place.client, leak.region or None)
        resources = [dict(zip(jobs.leak_columns, row, strict=True)) for row in leak.rows]
        remove = there.command("stop", leak.job) if leak.is_removable else ""
        rows.append(
            LeakRow(
                place.client.name, leak.job, leak.region, leak.is_leak, leak.why, leak.usd_per_hour, resources, remove
            )
        )
    return rows, "" if is_complete else "not all of it could be checked"
