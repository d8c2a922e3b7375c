"""launch.aws.instances.inventory: EC2's descriptions of a job's nodes and other resources, as our types."""

from datetime import UTC, datetime
from typing import Any

import pytest

from launch.aws.instances.inventory import Node, find, node, nodes_of
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal

# As DescribeInstances describes one, as far as we read it.
DESCRIBED: dict[str, Any] = {
    "InstanceId": "i-0123456789abcdef0",
    "State": {"Name": "terminated"},
    "InstanceType": "g5.2xlarge",
    "Placement": {"AvailabilityZone": "us-east-1a"},
    "LaunchTime": datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
    "InstanceLifecycle": "spot",
    "StateReason": {"Message": "Server.SpotInstanceTermination: Spot instance termination"},
    "StateTransitionReason": "Service initiated (2026-11-21 12:34:56 GMT)",
    "Tags": [
        {"Key": "aws-ddp-toolkit:job", "Value": "demo"},
        {"Key": "aws-ddp-toolkit:started", "Value": "2026-11-21T11:59:00Z"},
        {"Key": "aws-ddp-toolkit:generation", "Value": "2"},
        {"Key": "aws-ddp-toolkit:usd-per-hour", "Value": "1.5"},
        {"Key": "aws-ddp-toolkit:usd-once", "Value": "0.54"},
    ],
}


def test_a_node_that_ended_knows_when_and_why() -> None:
    assert node(DESCRIBED) == Node(
        id="i-0123456789abcdef0", job="demo", state="terminated", type="g5.2xlarge", zone="us-east-1a", address="",
        launched_at=datetime(2026, 11, 21, 12, 0, tzinfo=UTC), generation=2, spot=True, launch_index=0,
        reason="Server.SpotInstanceTermination: Spot instance termination",
        ended_at=datetime(2026, 11, 21, 12, 34, 56, tzinfo=UTC), started=datetime(2026, 11, 21, 11, 59, tzinfo=UTC),
        usd_per_hour=1.5, usd_once=0.54,
    )  # fmt: skip


@pytest.mark.parametrize("reason", ["", "Server.InternalError", "User initiated", "User initiated (yesterday)"])
def test_where_ec2_does_not_say_when_a_node_ended_it_is_not_guessed(reason: str) -> None:
    assert node({**DESCRIBED, "StateTransitionReason": reason}).ended_at is None


def test_only_the_jobs_own_are_found(account: Account) -> None:
    terminal = Terminal(account)
    mine, others = terminal.start("demo"), terminal.start("demo-2")
    assert [node.id for node in find(account.aws(), "demo").nodes] == mine
    assert [node.id for node in nodes_of(account.aws(), "demo").nodes] == mine
    assert {node.id for node in find(account.aws()).nodes} == {*mine, *others}
    assert find(account.aws(), "").nodes == ()


def test_a_job_is_known_by_its_network_interface_alone(account: Account) -> None:
    terminal, ec2 = Terminal(account), account.aws()
    terminal.start("demo", nodes=0, hours_ago=1)
    tags = ec2.call("ec2", "DescribeSecurityGroups", {"GroupNames": ["aws-ddp-toolkit-demo"]})["SecurityGroups"][0]
    ec2.call("ec2", "CreateNetworkInterface", {
        "SubnetId": account.subnets["us-east-1a"],
        "TagSpecifications": [{"ResourceType": "network-interface", "Tags": tags["Tags"]}],
    })  # fmt: skip
    ec2.call("ec2", "DeleteSecurityGroup", {"GroupId": tags["GroupId"]})
    fleet = find(ec2, "demo")
    assert [thing.kind for thing in fleet.resources] == ["network-interface"]
    assert (list(fleet.deadlines), list(fleet.started), fleet.buckets) == (["demo"], ["demo"], {"demo": account.bucket})
