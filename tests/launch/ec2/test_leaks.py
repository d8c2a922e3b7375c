"""What should not be there any more is found, priced and removed; what works is left alone."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from launch.aws.instances.inventory import Fleet, Node, Resource
from launch.core.jobs import NO_LEAKS, leaks_as_text
from launch.ec2.leaks import leaks_of
from launch.ec2.verbs import Ec2Jobs
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME, NOW, node
from tests.launch.ec2.terminal import Terminal
from tests.launch.faults import Faults, refused, unreachable

MINUTE = timedelta(minutes=1)
GROUP = Resource("security-group", "sg-1", NAME)


def verdict(fleet: Fleet, now: datetime) -> tuple[bool, str]:
    (found,) = leaks_of(fleet, "us-east-1", now)
    return found.is_leak, found.why


def fleet_of(*nodes: Node, things: tuple[Resource, ...] = (GROUP,)) -> Fleet:
    """A job that started at NOW, with a time limit of an hour."""
    return Fleet(nodes, things, {NAME: NOW}, {NAME: NOW + 60 * MINUTE})


# ---- what is a leak


def test_a_job_within_its_time_limit_is_no_leak() -> None:
    assert verdict(fleet_of(node(0)), NOW + 60 * MINUTE) == (False, "within its time limit")


def test_a_job_past_its_time_limit_is_a_leak() -> None:
    assert verdict(fleet_of(node(0)), NOW + 61 * MINUTE) == (True, "past its time limit")


def test_what_a_job_without_nodes_has_is_a_leak_after_a_quarter_of_an_hour() -> None:
    assert verdict(fleet_of(), NOW + 14 * MINUTE) == (False, "between nodes")
    assert verdict(fleet_of(), NOW + 16 * MINUTE) == (True, "no nodes left")


def test_a_job_whose_nodes_are_being_replaced_is_no_leak() -> None:
    lost = replace(node(0, "terminated"), ended_at=NOW + 30 * MINUTE)
    assert verdict(fleet_of(lost), NOW + 40 * MINUTE) == (False, "between nodes")
    assert verdict(fleet_of(lost), NOW + 46 * MINUTE) == (True, "no nodes left")


def test_nor_one_whose_nodes_were_taken_back_which_ec2_gives_no_time_for() -> None:
    lost = node(0, "terminated")
    assert verdict(fleet_of(lost), NOW + 59 * MINUTE) == (False, "between nodes")
    disk = Resource("volume", "vol-1", NAME, "available", NOW, 150, "gp3", iops=3000, mib_per_s=125)
    assert verdict(fleet_of(lost, things=(GROUP, disk)), NOW + 59 * MINUTE) == (True, "no nodes left")


def test_delete_leaves_a_spot_job_in_the_minute_in_which_its_nodes_are_replaced(terminal: Terminal) -> None:
    terminal.account.kill(*terminal.start("demo", hours_ago=2))
    terminal.later_s = 20 * 60
    assert terminal.type("status") == 0  # by now EC2 lists it as terminated
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert [line for line in terminal.account.left() if "security group" in line] != []


def test_a_job_that_waits_for_capacity_is_no_leak_while_it_costs_nothing() -> None:
    def waiting(fleet: Fleet, now: datetime) -> tuple[bool, str]:
        (found,) = leaks_of(fleet, "us-east-1", now, {NAME})
        return found.is_leak, found.why

    assert waiting(fleet_of(), NOW + 59 * MINUTE) == (False, "waits for capacity")
    assert waiting(fleet_of(), NOW + 61 * MINUTE) == (True, "past its time limit")
    disk = Resource("volume", "vol-1", NAME, "available", NOW, 150, "gp3", iops=3000, mib_per_s=125)
    assert waiting(fleet_of(things=(GROUP, disk)), NOW + 29 * MINUTE) == (True, "no nodes left")


def test_a_job_that_is_being_taken_down_is_no_leak() -> None:
    assert verdict(fleet_of(node(0, "shutting-down")), NOW + 40 * MINUTE) == (False, "its nodes are shutting down")


def test_a_stopped_node_past_the_limit_is_a_leak_as_its_volumes_cost() -> None:
    assert verdict(fleet_of(node(0, "stopped")), NOW + 61 * MINUTE) == (True, "past its time limit")


def test_nodes_without_a_time_limit_are_a_leak() -> None:
    assert verdict(Fleet((node(0),)), NOW) == (True, "without a time limit")


def test_a_schedule_without_anything_else_is_a_leak_once_a_launch_would_have_more() -> None:
    alone = Fleet((), (Resource("schedule", "aws-ddp-toolkit-x", "x", created=NOW),))
    assert verdict(alone, NOW + 14 * MINUTE) == (False, "between nodes")
    assert verdict(alone, NOW + 16 * MINUTE) == (True, "no nodes left")


def test_terminated_nodes_alone_are_nothing() -> None:
    assert leaks_of(Fleet((node(0, "terminated"),)), "us-east-1", NOW) == ()


@pytest.mark.parametrize("name", ["*", "", "a*", "demo?"])
def test_a_tag_that_would_mean_other_jobs_is_shown_but_never_removed(name: str) -> None:
    findings = leaks_of(Fleet((replace(node(0), job=name),)), "us-east-1", NOW)
    assert [(f.is_leak, f.why) for f in findings] == [(True, "the tag is not a job name, so remove it by hand")]
    assert not any(found.is_ours for found in findings)


def test_every_thing_is_listed_with_what_it_costs() -> None:
    disk = Resource("volume", "vol-1", NAME, "in-use", NOW, 150, "gp3", iops=3000, mib_per_s=125)
    late = Resource("security-group", "sg-2", "late")
    fleet = Fleet((node(0),), (disk, GROUP, late), {NAME: NOW}, {NAME: NOW + 60 * MINUTE, "late": NOW})
    now = NOW + 30 * MINUTE
    assert (
        leaks_as_text(Ec2Jobs.leak_columns, leaks_of(fleet, "us-east-1", now))
        == """\
  kind            id     job         region     age     USD/hour  why
  node            i-0    imagenet-1  us-east-1  30 min  1.212     within its time limit
  volume          vol-1  imagenet-1  us-east-1  30 min  0.016     within its time limit
  security-group  sg-1   imagenet-1  us-east-1  30 min  0.000     within its time limit
  security-group  sg-2   late        us-east-1  -       0.000     past its time limit

1.23 USD per hour, 0.00 USD of it for leaks"""
    )


# ---- python -m launch.ec2 leaks


@pytest.fixture
def terminal(account: Account) -> Terminal:
    return Terminal(account)


def test_an_account_without_anything_leaks_nothing(terminal: Terminal) -> None:
    assert terminal.type("leaks") == 0
    assert terminal.said == [NO_LEAKS]


def test_a_job_that_runs_is_shown_and_is_no_leak(terminal: Terminal) -> None:
    (name,) = terminal.start("demo", hours_ago=1)
    assert terminal.type("leaks") == 0
    kinds = [line.split()[0] for line in terminal.text.splitlines()[1:5]]
    assert kinds == ["node", "volume", "network-interface", "security-group"]
    assert name in terminal.text
    assert terminal.said[-1].endswith("\n1.23 USD per hour, 0.00 USD of it for leaks")


def test_a_leak_ends_with_4_and_nothing_is_removed_unasked(terminal: Terminal) -> None:
    terminal.start("late", hours_ago=9, hours_left=-1)
    before = terminal.account.left()
    assert terminal.type("leaks") == 4
    assert terminal.said[-1].splitlines()[-1] == "  python -m launch.ec2 leaks --delete"
    assert terminal.account.left() == before


def test_delete_removes_the_leaks_and_leaves_what_runs(terminal: Terminal) -> None:
    terminal.start("late", hours_ago=9, hours_left=-1)
    terminal.start("empty", nodes=0, hours_ago=1)
    (mine,) = terminal.start("mine", hours_ago=1)
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert [node.id for node in terminal.account.nodes] == [mine]
    assert [line for line in terminal.account.left() if "security group" in line] != []
    assert {line.split()[2] for line in terminal.said[-1].splitlines()[1:5]} == {"mine"}


def waiting_job(terminal: Terminal, hours_ago: float = 2, block: str | None = None, **written: object) -> None:
    """A job that may wait for six hours for nodes, which may then run for ten, or until the end of a block."""
    terminal.start("demo", nodes=0, hours_ago=hours_ago, hours_left=(8 if block else 16) - hours_ago)
    key = "jobs/demo/job.json"
    spec = json.loads(terminal.account.aws().read(terminal.account.bucket, key) or "")
    spec["where"] |= {"max_hours": 10, "capacity_block": block}
    terminal.account.put_json(key, {**spec, **written}, terminal.account.bucket)


@pytest.mark.parametrize(
    ("hours_ago", "block"), [(2, None), (9, None), (2, "cr-1")], ids=["at first", "for lost nodes", "for a block"]
)
def test_delete_leaves_a_job_that_waits_for_capacity(terminal: Terminal, hours_ago: float, block: str | None) -> None:
    """EC2 forgets lost nodes within an hour, and the time limit of a job in a capacity block is the block's end."""
    waiting_job(terminal, hours_ago, block)
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert any("waits for capacity" in line for line in terminal.text.splitlines())
    assert [line for line in terminal.account.left() if "security group" in line] != []


def test_delete_leaves_what_costs_nothing_where_aws_does_not_say_whether_it_waits(
    terminal: Terminal, faults: Faults
) -> None:
    waiting_job(terminal)
    faults.on("GetObject", unreachable(), nth=None)
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert any("waits for capacity" in line for line in terminal.text.splitlines())
    assert [line for line in terminal.account.left() if "security group" in line] != []


def test_and_removes_it_where_aws_will_never_say_so(terminal: Terminal, faults: Faults) -> None:
    """A refusal does not pass, and a job of a bucket that nobody may read would never be a leak."""
    waiting_job(terminal)
    faults.on("GetObject", refused("AccessDenied", 403), nth=None)
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert terminal.account.left() == []


def test_and_removes_what_one_that_has_ended_left(terminal: Terminal) -> None:
    waiting_job(terminal, ended=1_000_000_000)
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert terminal.account.left() == []


def test_nor_is_one_that_is_said_to_be_another_backends(terminal: Terminal) -> None:
    """And the word ends the command for nobody's other jobs."""
    waiting_job(terminal, backend="slurm")
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert terminal.account.left() == []


@pytest.mark.parametrize("hours", [float("nan"), -5, "10", None, True, 10**400])
def test_no_job_json_of_a_strangers_makes_a_leak_look_like_waiting(terminal: Terminal, hours: object) -> None:
    waiting_job(terminal, where={"nodes": 0, "max_hours": hours})
    assert terminal.type("leaks", "--delete", "--yes") == 0
    assert terminal.account.left() == []


def test_delete_running_removes_everything(terminal: Terminal) -> None:
    terminal.start("late", hours_ago=9, hours_left=-1)
    terminal.start("mine", nodes=2, hours_ago=1)
    assert terminal.type("leaks", "--delete", "--yes", "--running") == 0
    assert terminal.account.left() == []
    assert terminal.said[-1] == NO_LEAKS


def test_running_alone_is_refused(terminal: Terminal) -> None:
    terminal.start("mine")
    error = terminal.refused("leaks", "running", "true")
    assert (error.code, str(error)) == (2, "--running needs --delete; all jobs are listed anyway.")
    assert len(terminal.account.nodes) == 1


def test_folders_snapshots_and_logs_are_never_removed(terminal: Terminal) -> None:
    terminal.account.aws().call("logs", "CreateLogGroup", {"logGroupName": "/aws-ddp-toolkit/ec2"})
    terminal.start("late", hours_ago=9, hours_left=-1)
    terminal.type("leaks", "--delete", "--yes", "--running")
    assert "jobs/late/job.json" in terminal.account.s3_keys()
    writes = {name for name in terminal.account.operations if name.startswith("Delete")}
    assert writes <= {"DeleteSecurityGroup", "DeleteVolume", "DeleteNetworkInterface", "DeleteSchedule"}


def test_a_leak_that_stays_ends_with_4_and_says_why(terminal: Terminal, faults: Faults) -> None:
    terminal.start("late", hours_ago=9, hours_left=-1)
    faults.on("TerminateInstances", refused("UnauthorizedOperation", 403), nth=None)
    assert terminal.type("leaks", "--delete", "--yes") == 4
    assert any("late in us-east-1: these credentials may not ec2:TerminateInstances" in line for line in terminal.said)
    assert len(terminal.account.nodes) == 1


def test_a_star_in_a_tag_removes_no_other_job(terminal: Terminal) -> None:
    (mine,) = terminal.start("mine", hours_ago=1)
    tag = {"Key": "aws-ddp-toolkit:job", "Value": "*"}
    ec2 = terminal.account.aws()
    volume = ec2.call("ec2", "CreateVolume", {
        "AvailabilityZone": "us-east-1a", "Size": 1, "TagSpecifications": [{"ResourceType": "volume", "Tags": [tag]}],
    })["VolumeId"]  # fmt: skip
    assert terminal.type("leaks", "--delete", "--yes", "--running", "--region", "us-east-1") == 4
    assert mine not in [node.id for node in terminal.account.nodes]
    assert f"volume {volume}" in terminal.account.left()
    assert [params["InstanceIds"] for params in terminal.account.asked("TerminateInstances")] == [[mine]]


def test_all_regions_are_asked_and_one_that_cannot_be_is_named(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    from launch.aws import regions
    from launch.aws.client import Aws
    from launch.core.errors import AwsError

    asked = Aws.pages

    def pages(self: Aws, service: str, operation: str, key: str, params: object = None, /) -> object:
        if self.region == "eu-west-2" and operation == "DescribePlacementGroups":
            raise AwsError("the organisation does not allow eu-west-2.")
        return asked(self, service, operation, key, params)  # type: ignore[arg-type]

    monkeypatch.setattr(Aws, "pages", pages)
    monkeypatch.setattr(regions, "regions_of", lambda aws: ["eu-west-1", "eu-west-2", "us-east-1"])
    terminal.start("here", hours_ago=1)
    terminal.start("far", hours_ago=9, hours_left=-1, region="eu-west-1")
    assert terminal.type("leaks", "--all-regions") == 4
    assert terminal.said[0] == "warning: eu-west-2 could not be checked: the organisation does not allow eu-west-2."
    where = {tuple(line.split()[2:4]) for line in terminal.said[1].splitlines()[1:9]}
    assert where == {("far", "eu-west-1"), ("here", "us-east-1")}


def test_regions_that_cannot_be_asked_are_not_called_clean(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    from launch.aws import regions
    from launch.aws.client import Aws
    from launch.core.errors import AwsError

    def call(self: Aws, *asked: object) -> object:
        raise AwsError("the organisation does not allow this.")

    monkeypatch.setattr(regions, "regions_of", lambda aws: ["eu-west-1", "eu-west-2"])
    monkeypatch.setattr(Aws, "call", call)
    monkeypatch.setattr(Aws, "pages", call)
    assert terminal.type("leaks", "--all-regions") == 4
    assert [line.split(":")[0] for line in terminal.said] == ["warning", "warning"]


def test_leaks_of_other_regions_are_removed_there(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    from launch.aws import regions

    monkeypatch.setattr(regions, "regions_of", lambda aws: ["eu-west-1", "us-east-1"])
    terminal.start("far", hours_ago=9, hours_left=-1, region="eu-west-1")
    assert terminal.type("leaks", "--delete", "--yes", "--all-regions") == 0
    assert [line for line in terminal.account.left() if not line.startswith("snapshot")] == []  # of its machine image


def test_the_regions_are_those_of_the_account(account: Account) -> None:
    from launch.aws.regions import regions_of

    assert {"us-east-1", "eu-central-1"} <= set(regions_of(account.aws()))
