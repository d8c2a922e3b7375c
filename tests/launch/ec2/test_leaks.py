"""What should not be there any more is found, priced and removed; what works is left alone."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from launch.aws import regions
from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet, Node, Resource
from launch.core.errors import AwsError
from launch.core.jobs import NO_LEAKS, leaks_as_text
from launch.ec2.leaks import active_jobs, leaks_of
from launch.ec2.verbs import Ec2Jobs
from tests.launch.ec2.known import NAME, NOW, node
from tests.launch.ec2.terminal import Terminal
from tests.launch.faults import Fault, Faults, refused, unreachable

MINUTE = timedelta(minutes=1)
GROUP = Resource("security-group", "sg-1", NAME)


def fleet_of(*nodes: Node, things: tuple[Resource, ...] = (GROUP,)) -> Fleet:
    """A job that started at NOW, with a time limit of an hour."""
    return Fleet(nodes, things, {NAME: NOW}, {NAME: NOW + 60 * MINUTE})


DISK = Resource("volume", "vol-1", NAME, "available", NOW, 150, "gp3", iops=3000, mib_per_s=125)
SCHEDULE = Fleet((), (Resource("schedule", "aws-ddp-toolkit-x", "x", created=NOW),))
ENDED = replace(node(0, "terminated"), ended_at=NOW + 30 * MINUTE)
TAKEN = node(0, "terminated")  # EC2 does not say when


# ---- what is a leak


@pytest.mark.parametrize(
    ("fleet", "waiting", "fine_until", "why"),
    [
        (fleet_of(node(0)), (), 60, "past its time limit"),
        (fleet_of(node(0, "stopped")), (), 60, "past its time limit"),  # its volumes cost
        (fleet_of(), (), 15, "no nodes left"),
        (fleet_of(ENDED), (), 45, "no nodes left"),  # it may be being replaced
        (fleet_of(TAKEN), (), 60, "past its time limit"),
        (fleet_of(TAKEN, things=(GROUP, DISK)), (), 15, "no nodes left"),
        (fleet_of(), {NAME}, 60, "past its time limit"),  # waits for capacity, and costs nothing
        (fleet_of(things=(GROUP, DISK)), {NAME}, 15, "no nodes left"),
        (SCHEDULE, (), 15, "no nodes left"),  # a launch makes it first
    ],
)
def test_what_a_job_has_is_a_leak_from_some_time_on(fleet: Fleet, waiting: Any, fine_until: int, why: str) -> None:
    before, after = (
        leaks_of(fleet, "us-east-1", NOW + (fine_until + more) * MINUTE, waiting)[0] for more in (-0.5, 0.5)
    )
    assert not before.is_leak
    assert (after.is_leak, after.why) == (True, why)


@pytest.mark.parametrize(
    ("one", "is_leak", "is_removable"),
    [
        (node(0), True, True),  # without a time limit
        (replace(node(0), job="*"), True, False),  # it would mean other jobs
        (replace(node(0), job=""), True, False),
    ],
)
def test_a_node_without_a_limit_is_a_leak_and_removed_if_its_tag_is_a_name(
    one: Node, is_leak: bool, is_removable: bool
) -> None:
    (found,) = leaks_of(Fleet((one,)), "us-east-1", NOW)
    assert (found.is_leak, found.is_removable) == (is_leak, is_removable)


def test_a_job_that_is_being_taken_down_is_no_leak() -> None:
    (found,) = leaks_of(fleet_of(node(0, "shutting-down")), "us-east-1", NOW + 40 * MINUTE)
    assert not found.is_leak


def test_terminated_nodes_alone_are_nothing() -> None:
    assert leaks_of(Fleet((node(0, "terminated"),)), "us-east-1", NOW) == ()


def test_every_thing_is_listed_with_what_it_costs(golden: Callable[[str, str], None]) -> None:
    fleet = Fleet((node(0),), (DISK, GROUP, Resource("security-group", "sg-2", "late")), {NAME: NOW},
                  {NAME: NOW + 60 * MINUTE, "late": NOW})  # fmt: skip
    found = leaks_of(fleet, "us-east-1", NOW + 30 * MINUTE)
    golden("leaks.txt", leaks_as_text(Ec2Jobs.leak_columns, found) + "\n")


# ---- python -m launch.ec2 leaks


def test_delete_removes_the_leaks_and_leaves_what_runs(terminal: Terminal) -> None:
    terminal.start("late", hours_ago=9, hours_left=-1)
    terminal.start("empty", nodes=0, hours_ago=1)
    (mine,) = terminal.start("mine", hours_ago=1)
    before = terminal.account.left()
    assert terminal.type("leaks") == 4
    assert terminal.type("leaks", "--delete") == 2  # it asks, and nobody is there to answer
    assert terminal.account.left() == before
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert [node.id for node in terminal.account.nodes] == [mine]
    kinds = [line.split()[:3:2] for line in terminal.said[-1].splitlines()[1:5]]
    assert kinds == [[kind, "mine"] for kind in ("node", "volume", "network-interface", "security-group")]
    assert terminal.type("leaks", "--delete", "--yes", "--running") == 0
    assert terminal.account.left() == []
    assert terminal.said[-1] == NO_LEAKS


def waiting_job(terminal: Terminal, hours_ago: float = 2, block: str | None = None, **written: object) -> None:
    """A job that may wait for six hours for nodes, which may then run for ten, or until the end of a block."""
    terminal.start("demo", nodes=0, hours_ago=hours_ago, hours_left=(8 if block else 16) - hours_ago)
    key = "jobs/demo/job.json"
    spec = json.loads(terminal.account.aws().read(terminal.account.bucket, key) or "")
    spec["where"] |= {"max_hours": 10, "capacity_block": block}
    terminal.account.put_json(key, {**spec, **written}, terminal.account.bucket)


@pytest.mark.parametrize(
    ("hours_ago", "block", "fault"),
    [(2, None, None), (2, None, unreachable())],
    ids=["at first", "AWS does not say"],
)
def test_delete_leaves_a_job_that_waits_for_capacity(
    terminal: Terminal, faults: Faults, hours_ago: float, block: str | None, fault: Fault | None
) -> None:
    """EC2 forgets lost nodes within an hour, and the time limit of a job in a capacity block is the block's end."""
    waiting_job(terminal, hours_ago, block)
    if fault:
        faults.on("GetObject", fault, nth=None)
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert "waits for capacity" in terminal.text
    assert [line for line in terminal.account.left() if "security group" in line] != []


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ({}, refused("AccessDenied", 403)),  # it does not pass
        ({"ended": 1_000_000_000}, None),
    ],
)
def test_delete_removes_what_does_not_wait(
    terminal: Terminal, faults: Faults, written: dict[str, object], fault: Fault | None
) -> None:
    waiting_job(terminal, **written)
    if fault:
        faults.on("GetObject", fault, nth=None)
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert terminal.account.left() == []


def test_folders_snapshots_and_logs_are_never_removed(terminal: Terminal) -> None:
    terminal.account.aws().call("logs", "CreateLogGroup", {"logGroupName": "/aws-ddp-toolkit/ec2"})
    terminal.start("late", hours_ago=9, hours_left=-1)
    terminal.type("leaks", "--delete", "--yes", "--running")
    assert "jobs/late/job.json" in terminal.account.s3_keys()
    writes = {name for name in terminal.account.operations if name.startswith("Delete")}
    assert writes <= {"DeleteSecurityGroup", "DeleteVolume", "DeleteNetworkInterface", "DeleteSchedule"}


def test_all_regions_are_searched_and_one_that_fails_is_named(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Aws.pages

    def pages(self: Aws, service: str, operation: str, key: str, params: object = None, /) -> object:
        if self.region == "eu-west-2":
            raise AwsError("the organisation does not allow eu-west-2.")
        return asked(self, service, operation, key, params)  # type: ignore[arg-type]

    monkeypatch.setattr(Aws, "pages", pages)
    monkeypatch.setattr(regions, "regions_of", lambda aws: ["eu-west-1", "eu-west-2", "us-east-1"])
    terminal.start("here", hours_ago=1)
    terminal.start("far", hours_ago=9, hours_left=-1, region="eu-west-1")
    assert terminal.type("leaks", "--all-regions") == 4
    assert terminal.said[0].startswith("warning: eu-west-2")
    where = {tuple(line.split()[2:4]) for line in terminal.said[1].splitlines()[1:9]}
    assert where == {("far", "eu-west-1"), ("here", "us-east-1")}
    assert terminal.type("leaks", "--delete", "--yes", "--all-regions") == 4  # a region is not known to be clean
    assert {line.split()[3] for line in terminal.said[-1].splitlines()[1:5]} == {"us-east-1"}


def test_a_job_that_keeps_the_accounts_roles_is_named_with_the_command_that_stops_it(terminal: Terminal) -> None:
    terminal.start("demo")
    (line,) = active_jobs(terminal.account.aws(), terminal.clock.utc())
    assert line.startswith("demo in us-east-1")
    assert "python -m launch.ec2 stop demo --region us-east-1" in line
