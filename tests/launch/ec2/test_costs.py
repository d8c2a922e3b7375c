"""What a job costs, in numbers that can be checked by hand."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from launch.aws.instances.inventory import Fleet, Resource
from launch.ec2.costs import cost_so_far, is_whole, most_it_cost, node_usd, resource_usd, unpriced, usd_per_hour
from launch.ec2.watch import with_ends
from tests.launch.ec2.known import NAME, NOW, node

# g5.2xlarge is 1.212 USD an hour on demand in us-east-1.
HOUR = timedelta(hours=1)


def disk(number: int, gib: int = 730, kind: str = "gp3", iops: int = 3000, mib_per_s: int = 125) -> Resource:
    """Of 730 GiB, so that a month's 0.08 USD per GiB is an hour's 0.08 USD."""
    return Resource("volume", f"vol-{number}", NAME, "in-use", NOW, gib, kind, iops=iops, mib_per_s=mib_per_s)


@pytest.mark.parametrize(
    ("state", "usd"),
    [("pending", 1.212), ("running", 1.212), ("shutting-down", 0), ("terminated", 0), ("stopping", 0), ("stopped", 0)],
)
def test_a_node_costs_while_it_starts_and_runs(state: str, usd: float) -> None:
    assert node_usd(node(0, state)) == usd
    assert usd_per_hour(Fleet((node(0, state),), (disk(0),))) == pytest.approx(usd + 0.08)


@pytest.mark.parametrize(
    ("volume", "usd_per_month"),
    [
        (disk(0, gib=150), 12.0),
        (disk(0, gib=150, iops=4000), 12.0 + 5.0),
        (disk(0, gib=150, mib_per_s=225), 12.0 + 4.0),
        (disk(0, gib=100, kind="io2", iops=16_000, mib_per_s=0), 12.5 + 1040.0),
        (disk(0, gib=150, kind="gp2", iops=450, mib_per_s=0), 12.0),
        (Resource("security-group", "sg-0", NAME), 0.0),
    ],
)
def test_a_volume_costs_by_size_and_what_it_promises(volume: Resource, usd_per_month: float) -> None:
    assert resource_usd(volume) * 730 == pytest.approx(usd_per_month)


ENDED = replace(node(0, "terminated"), ended_at=NOW + HOUR)
BEFORE = replace(node(0, "terminated"), started=NOW - HOUR, launched_at=NOW - HOUR, ended_at=NOW)
TAGGED = replace(node(0), usd_per_hour=1.5, usd_once=0.54)


@pytest.mark.parametrize(
    ("fleet", "hours", "usd"),
    [
        (Fleet((node(0), node(1)), (disk(0), disk(1))), 2, 2 * 2 * (1.212 + 0.08)),
        (Fleet((ENDED,)), 9, 1.212),
        (Fleet((node(0, "terminated"),)), 9, 9 * 1.212),  # EC2 does not say when it ended
        (Fleet((TAGGED,)), 2, 2 * 1.5 + 0.54),
        (Fleet((BEFORE, replace(node(1), started=NOW)), started={NAME: NOW}), 1, 1.212),  # of this start alone
        (Fleet(), 1, 0),
        (Fleet((node(0),), (disk(0),)), -1, 0),  # by a clock that is behind
    ],
)
def test_a_job_has_cost_what_its_nodes_and_disks_have(fleet: Fleet, hours: float, usd: float) -> None:
    assert cost_so_far(fleet, NOW + hours * HOUR) == pytest.approx(usd)


def test_a_node_whose_end_is_only_in_its_record_costs_until_then() -> None:
    """A9: EC2 says "User initiated" alone where a node shut itself down: 1.51 USD were reported instead of 0.40."""
    fleet = Fleet((node(0, "terminated"), node(1, "terminated")))
    exits = {"i-0": {"at": (NOW + HOUR).timestamp()}}
    known = with_ends(fleet, NAME, exits, {"ended": (NOW + 2 * HOUR).timestamp()})
    assert cost_so_far(known, NOW + 9 * HOUR) == pytest.approx((1 + 2) * 1.212)
    assert cost_so_far(with_ends(fleet, NAME, exits, None), NOW + 9 * HOUR) == pytest.approx((1 + 9) * 1.212)


def test_ec2_forgets_replaced_nodes_so_the_sum_is_no_more_whole() -> None:
    first, second = Fleet((node(0),)), Fleet((node(0), node(1, generation=2)))
    assert is_whole(first, NOW + 9 * HOUR)
    assert is_whole(second, NOW + timedelta(minutes=49))
    assert not is_whole(second, NOW + timedelta(minutes=51))


def test_a_type_without_a_price_is_named_and_not_guessed() -> None:
    fleet = Fleet((node(0), replace(node(1), type="x99.huge")))
    assert usd_per_hour(fleet) == pytest.approx(1.212)
    assert unpriced(fleet) == ("x99.huge",)


def test_a_job_that_is_over_cost_at_most_its_dearest_type_all_the_time() -> None:
    spec = {"started": 0, "where": {"nodes": 2, "instance_type": ["g5.2xlarge", "g5.12xlarge"], "root_gb": 730}}
    root_usd_per_hour = 0.08 + (400 - 125) * 0.04 / 730
    assert most_it_cost(spec, datetime.fromtimestamp(7200, UTC)) == pytest.approx(2 * 2 * (5.672 + root_usd_per_hour))
