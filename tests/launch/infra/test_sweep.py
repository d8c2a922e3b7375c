"""infra/cloudformation/sweep.py, run as AWS runs it: the text of the document's step, against moto's EC2."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.names import TIME
from launch.infra.template import filled, read
from tests.launch.ec2.account import Account
from tests.launch.faults import Faults, refused

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)


def script() -> dict[str, Any]:
    """The functions of the script in the template."""
    content = read(filled("123456789012", "us-east-1"))["Resources"]["Sweeper"]["Properties"]["Content"]
    names: dict[str, Any] = {}
    exec(content["mainSteps"][0]["inputs"]["Script"], names)
    return names


def tagged(**tags: str) -> list[dict[str, str]]:
    """Our tags, as a launch writes them for a job; only those of `tags` where there is no job."""
    if "job" in tags:
        tags = {"started": "2020-01-01T00:00:00Z", "bucket": "b-1", **tags}
    named = [{"Key": f"aws-ddp-toolkit:{key}", "Value": value} for key, value in tags.items()]
    return [*named, {"Key": "Name", "Value": f"aws-ddp-toolkit-{tags['job']}"}] if "job" in tags else named


def node(name: str, state: str = "running", **tags: str) -> dict[str, Any]:
    named = tagged(**tags)
    return {"InstanceId": name, "State": {"Name": state}, "Tags": named}


@pytest.mark.parametrize(
    ("late_by", "is_late"),
    [(timedelta(minutes=-1), False), (timedelta(seconds=1), True)],
)
def test_a_node_is_late_after_its_deadline(late_by: timedelta, is_late: bool) -> None:
    nodes = [node("i-1", job="j", deadline=(NOW - late_by).strftime(TIME))]
    assert script()["judge"](nodes, "InstanceId", NOW) == (["i-1"] if is_late else [], [])


@pytest.mark.parametrize(
    ("events", "ended"),
    [
        ({}, {"20"}),
        ({"grace_minutes": "15"}, {"20"}),
        ({"grace_minutes": "0"}, {"10", "20"}),
        ({"grace_minutes": "-600"}, {"10", "20"}),  # nobody ends a node before its deadline
    ],
)
def test_it_waits_a_quarter_of_an_hour_and_a_time_limit_does_not(
    events: dict[str, str], ended: set[str], account: Account, aws: Aws
) -> None:
    """By minutes that a node is late."""
    now = datetime.now(UTC)
    nodes = {
        start(account, aws, job="j", deadline=(now - timedelta(minutes=late)).strftime(TIME)): str(late)
        for late in (-10, 10, 20)
    }

    assert {nodes[name] for name in script()["sweep"](events, {})["ended"]} == ended


def test_only_what_carries_both_tags_and_lives_is_ended() -> None:
    over = "2026-11-20T14:00:00Z"
    nodes = [
        node("i-others", deadline=over),
        node("i-without", job="j"),
        node("i-odd", job="j", deadline="tomorrow"),
        node("i-stopped", "stopped", job="j", deadline=over),
    ]
    assert script()["judge"](nodes, "InstanceId", NOW) == (["i-stopped"], ["i-without", "i-odd"])


@pytest.mark.parametrize(
    ("tag", "value"),
    [("Name", ""), ("Name", "prod-database"), ("aws-ddp-toolkit:started", ""), ("aws-ddp-toolkit:bucket", "")],
)
def test_what_lacks_one_of_our_tags_or_has_a_name_of_its_own_is_not_ended(tag: str, value: str) -> None:
    late = node("prod-database", job="j", deadline="2026-11-20T14:00:00Z")
    others = [one for one in late["Tags"] if one["Key"] != tag]
    late["Tags"] = [*others, *([{"Key": tag, "Value": value}] if value else [])]
    assert script()["judge"]([late], "InstanceId", NOW) == ([], [])


def start(account: Account, aws: Aws, **tags: str) -> str:
    params = {"ImageId": account.ami, "InstanceType": "g5.2xlarge", "MinCount": 1, "MaxCount": 1,
              "SubnetId": account.subnets["us-east-1a"]}  # fmt: skip
    own = {"TagSpecifications": [{"ResourceType": "instance", "Tags": tagged(**tags)}]} if tags else {}
    return str(aws.call("ec2", "RunInstances", params | own)["Instances"][0]["InstanceId"])


def living(account: Account) -> list[str]:
    """Jobs without a stop request."""
    return sorted(node.id for node in account.nodes if node.state in ("pending", "running"))


def test_it_ends_the_late_ones_and_no_other(account: Account, aws: Aws) -> None:
    late = [start(account, aws, job="j", deadline="2020-01-01T00:00:00Z") for _ in range(2)]
    others = [
        start(account, aws, job="k", deadline="2999-01-01T00:00:00Z"),
        start(account, aws, job="l"),
        start(account, aws),
    ]

    assert script()["sweep"]({}, {}) == {"ended": late, "deleted": [], "unreadable": []}
    assert living(account) == sorted(others)
    assert script()["sweep"]({}, {}) == {"ended": [], "deleted": [], "unreadable": []}


def test_it_deletes_volumes_that_no_node_has_once_they_are_late(account: Account, aws: Aws) -> None:
    """A4: a launcher that dies between CreateVolume and AttachVolume leaves one that no timer of a node deletes."""
    late = start(account, aws, job="j", deadline="2020-01-01T00:00:00Z")

    def volume(**tags: str) -> str:
        made = account.ec2.create_volume(size=150, zone_name="us-east-1a", volume_type="io2", iops=16_000)
        made.add_tags({tag["Key"]: tag["Value"] for tag in tagged(**tags)})
        return str(made.id)

    unused = volume(job="j", deadline="2020-01-01T00:00:00Z")
    others = [volume(job="k", deadline="2999-01-01T00:00:00Z"), volume()]
    attached = volume(job="j", deadline="2020-01-01T00:00:00Z")
    for _ in range(3):  # until it runs
        aws.call("ec2", "DescribeInstances")
    account.ec2.attach_volume(attached, late, "/dev/sdf")

    assert script()["sweep"]({}, {}) == {"ended": [late], "deleted": [unused], "unreadable": []}
    assert unused not in account.ec2.volumes
    assert {*others, attached} <= account.ec2.volumes.keys()


def test_one_that_cannot_be_ended_does_not_save_the_others(account: Account, aws: Aws, faults: Faults) -> None:
    protected, _ = [start(account, aws, job="j", deadline="2020-01-01T00:00:00Z") for _ in range(2)]
    faults.on("TerminateInstances", refused("OperationNotPermitted", 400))

    with pytest.raises(RuntimeError, match="OperationNotPermitted"):
        script()["sweep"]({}, {})
    assert living(account) == [protected]
