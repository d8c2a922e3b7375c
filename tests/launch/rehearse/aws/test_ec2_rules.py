"""Rules of EC2 that moto lacks: a small request for each, and AWS's documented answer."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.core.errors import AwsError
from launch.rehearse.aws.ec2 import scheduler
from launch.rehearse.aws.ec2.network import reached
from launch.rehearse.aws.iam.policies import policy
from launch.rehearse.nodes.ec2.node import CLOSED_PORT, NodeSetup, environment
from tests.launch.ec2.account import SCHEDULER_ROLE, Account

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
JOB = {"aws-ddp-toolkit:job": "j"}
# All that a launch gives a node: the time limit ends nothing that has less, or is not past its own deadline.
TAGS = JOB | {
    "aws-ddp-toolkit:bucket": "x", "aws-ddp-toolkit:started": "x", "aws-ddp-toolkit:deadline": "2027-01-15T08:00:30Z",
    "Name": "aws-ddp-toolkit-j",
}  # fmt: skip


@pytest.fixture
def account() -> Iterator[Account]:
    with Account.opened() as opened:
        opened.rules.now = lambda: opened.rules.at
        opened.rules.at = NOW
        yield opened


def ask(operation: str, **params: Any) -> dict[str, Any]:
    return Aws("us-east-1").call("ec2", operation, params)


def code(act: Callable[..., object], *args: Any, **params: Any) -> str:
    with pytest.raises(AwsError) as error:
        act(*args, **params)
    return error.value.aws_code


def run(account: Account, count: int = 1, cards: int = 1, **more: Any) -> list[str]:
    """Starts instances in the first zone; returns their IDs."""
    subnet = account.subnets["us-east-1a"]
    interfaces = [{"DeviceIndex": min(card, 1), "NetworkCardIndex": card, "SubnetId": subnet} for card in range(cards)]
    params = {"ImageId": account.ami, "InstanceType": "g5.2xlarge", "MinCount": count, "MaxCount": count,
              "NetworkInterfaces": interfaces, **more}  # fmt: skip
    tags = [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in TAGS.items()]}]
    return [i["InstanceId"] for i in ask("RunInstances", **{"TagSpecifications": tags, **params})["Instances"]]


def states(account: Account) -> dict[str, Any]:
    found = Aws("us-east-1").pages("ec2", "DescribeInstances", "Reservations")
    return {node["InstanceId"]: node for one in found for node in one["Instances"]}


# ---- parameters of RunInstances


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
        ({"MinCount": 2, "MaxCount": 1}, "InvalidParameterCombination"),
        ({"SubnetId": "subnet-1"}, "InvalidParameterCombination"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 74}}]},
            "InvalidBlockDeviceMapping",
        ),
        ({"NetworkInterfaces": [{"DeviceIndex": 1}]}, "InvalidParameterCombination"),
        (
            {"NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}, {"DeviceIndex": 1}]},
            "InvalidParameterCombination",
        ),
        (
            {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"InstanceInterruptionBehavior": "stop"}}},
            "InvalidParameterCombination",
        ),
        (
            {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {
                "SpotInstanceType": "one-time", "ValidUntil": datetime(2030, 1, 1, tzinfo=UTC)}}},
            "InvalidParameterCombination",
        ),
        ({"Ebs": {"VolumeInitializationRate": 301, "SnapshotId": "snap-1"}}, "InvalidParameterValue"),
        ({"Ebs": {"VolumeInitializationRate": 100, "VolumeSize": 1}}, "InvalidParameterCombination"),
        ({"Ebs": {"VolumeType": "gp3", "Iops": 3000, "Throughput": 1000}}, "InvalidParameterCombination"),
        ({"UserData": "x" * 16_385}, "InvalidParameterValue"),
    ],
    ids=str,
)  # fmt: skip
def test_a_request_that_breaks_a_rule_is_refused_before_anything_is_made(
    account: Account, wrong: dict[str, Any], expected: str
) -> None:
    disk = {"BlockDeviceMappings": [{"DeviceName": "/dev/sdf", "Ebs": wrong["Ebs"]}]} if "Ebs" in wrong else {}
    assert code(run, account, **{**{key: value for key, value in wrong.items() if key != "Ebs"}, **disk}) == expected
    assert account.nodes == []


# ---- addresses and ways out


@pytest.mark.parametrize(
    "way", ["nothing", "internet gateway", "NAT gateway", "gateway endpoint", "interface endpoint"]
)
@pytest.mark.parametrize("cards", [1, 2])
def test_an_instance_reaches_what_its_routes_and_addresses_lead_to(account: Account, way: str, cards: int) -> None:
    """https://docs.aws.amazon.com/vpc/latest/userguide/VPC_Internet_Gateway.html"""
    ec2, vpc = account.ec2, account.ec2.get_default_vpc().id
    (table,) = ec2.describe_route_tables(filters={"vpc-id": [vpc]})
    if way != "internet gateway":
        ask("DeleteRoute", RouteTableId=table.id, DestinationCidrBlock="0.0.0.0/0")
    if way == "NAT gateway":
        nat = ask("CreateNatGateway", SubnetId=account.subnets["us-east-1b"], ConnectivityType="private")
        ask("CreateRoute", RouteTableId=table.id, DestinationCidrBlock="0.0.0.0/0",
            NatGatewayId=nat["NatGateway"]["NatGatewayId"])  # fmt: skip
    if way == "gateway endpoint":
        ask("CreateVpcEndpoint", VpcId=vpc, ServiceName="com.amazonaws.us-east-1.s3", RouteTableIds=[table.id])
    if way == "interface endpoint":
        ask("CreateVpcEndpoint", VpcId=vpc, ServiceName="com.amazonaws.us-east-1.logs", VpcEndpointType="Interface",
            PrivateDnsEnabled=True)  # fmt: skip
    (name,) = run(account, cards=cards)
    expected = {"nothing": frozenset(), "internet gateway": None if cards == 1 else frozenset(), "NAT gateway": None,
                "gateway endpoint": frozenset({"s3"}), "interface endpoint": frozenset({"logs"})}[way]  # fmt: skip
    assert reached(ec2, ec2.get_instance(name)) == expected


NOT_443 = {"Egress": True, "RuleAction": "deny", "PortRange": {"From": 443, "To": 443}}
NO_ANSWERS = {"Egress": False, "RuleAction": "deny", "PortRange": {"From": 1024, "To": 65535}}
NOT_TO_PEERS = {**NOT_443, "CidrBlock": "10.0.0.0/8"}


@pytest.mark.parametrize(
    ("rule", "dns", "expected"),
    [
        (NOT_443, True, frozenset()),
        (NO_ANSWERS, True, frozenset()),
        (NOT_TO_PEERS, True, None),
        (None, False, frozenset()),
    ],
)
def test_an_instance_reaches_nothing_past_its_network_acl_or_without_dns(
    account: Account, rule: dict[str, Any] | None, dns: bool, expected: frozenset[str] | None
) -> None:
    """https://docs.aws.amazon.com/vpc/latest/userguide/nacl-basics.html and vpc-dns.html"""
    ec2, vpc = account.ec2, account.ec2.get_default_vpc().id
    (name,) = run(account)
    if rule:
        (acl,) = ask("DescribeNetworkAcls", Filters=[{"Name": "vpc-id", "Values": [vpc]}])["NetworkAcls"]
        entry = {
            "NetworkAclId": acl["NetworkAclId"],
            "RuleNumber": 9,
            "Protocol": "6",
            "CidrBlock": "0.0.0.0/0",
            **rule,
        }
        ask("CreateNetworkAclEntry", **entry)
    ask("ModifyVpcAttribute", VpcId=vpc, EnableDnsSupport={"Value": dns})
    assert reached(ec2, ec2.get_instance(name)) == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}, frozenset()),
        ({"IpProtocol": "tcp", "FromPort": 53, "ToPort": 53, "IpRanges": [{"CidrIp": "10.0.0.2/32"}]}, frozenset()),
        ({"IpProtocol": "udp", "FromPort": 53, "ToPort": 53, "IpRanges": [{"CidrIp": "10.0.0.3/32"}]}, frozenset()),
        ({"IpProtocol": "udp", "FromPort": 53, "ToPort": 53, "IpRanges": [{"CidrIp": "10.0.0.2/32"}]}, None),
    ],
    ids=["HTTPS", "TCP", "another server", "its server"],
)
def test_an_instance_reaches_nothing_without_a_rule_for_its_vpcs_own_dns_server(
    account: Account, rule: dict[str, Any], expected: frozenset[str] | None
) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/security-group-rules-reference.html, DNS server rules"""
    vpc = account.use_dns("10.0.0.2")
    group = ask("CreateSecurityGroup", GroupName="closed", Description="closed", VpcId=vpc)["GroupId"]
    everywhere = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    ask("RevokeSecurityGroupEgress", GroupId=group, IpPermissions=everywhere)
    ask("AuthorizeSecurityGroupEgress", GroupId=group, IpPermissions=[rule])
    interface = {"DeviceIndex": 0, "SubnetId": account.subnets["us-east-1a"], "Groups": [group]}
    (name,) = run(account, NetworkInterfaces=[interface])
    assert reached(account.ec2, account.ec2.get_instance(name)) == expected


def test_a_node_that_reaches_nothing_has_no_aws_to_talk_to() -> None:
    def seen(reaches: frozenset[str] | None) -> dict[str, str]:
        found = environment(NodeSetup("http://aws", reaches=reaches), "/bin", "/home")
        return {name: value for name, value in found.items() if name.startswith(("AWS_ENDPOINT", "EC2_"))}

    assert seen(None) == {"AWS_ENDPOINT_URL": "http://aws"}
    assert seen(frozenset()) == {"AWS_ENDPOINT_URL": CLOSED_PORT, "EC2_REACHES": ""}
    assert seen(frozenset({"s3", "ecr.dkr"})) == {
        "AWS_ENDPOINT_URL": CLOSED_PORT, "AWS_ENDPOINT_URL_S3": "http://aws", "EC2_REACHES": "ecr.dkr s3",
    }  # fmt: skip


# ---- tokens


def test_a_token_whose_instances_have_ended_starts_nothing(account: Account) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html#api-error-codes-table-client"""
    account.slow.ending = 0
    (name,) = run(account, ClientToken="t")
    assert run(account, ClientToken="t") == [name]
    assert code(run, account, 2, ClientToken="t") == "IdempotentParameterMismatch"
    ask("TerminateInstances", InstanceIds=[name])
    assert code(run, account, ClientToken="t") == "IdempotentInstanceTerminated"
    assert account.nodes == []


# ---- the end of an instance


def test_an_instance_that_has_ended_is_listed_for_an_hour(account: Account) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html"""
    account.slow.ending = 0
    (name,) = run(account)
    ask("TerminateInstances", InstanceIds=[name])
    account.rules.at += 3_500
    assert states(account)[name]["State"]["Name"] == "terminated"
    account.rules.at += 200
    assert states(account) == {}
    assert code(ask, "TerminateInstances", InstanceIds=[name]) == "InvalidInstanceID.NotFound"


def test_an_instance_may_end_instead_of_running(account: Account) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html"""
    account.rules.failed_starts.append("Server.InsufficientInstanceCapacity: Insufficient instance capacity")
    lost, _ = run(account, 2)
    account.slow.ending = 0
    seen = [{name: node["State"]["Name"] for name, node in states(account).items()} for _ in range(2)]
    assert [set(one.values()) for one in seen] == [{"pending"}, {"terminated", "running"}]
    assert states(account)[lost]["StateReason"]["Code"] == "Server.InsufficientInstanceCapacity"


# ---- room


def test_spot_instances_need_their_service_linked_role(account: Account) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html"""
    account.rules.has_spot_role = False
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    assert code(run, account, **spot) == "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    assert run(account)


def test_volumes_that_are_being_filled_share_one_rate(account: Account) -> None:
    """https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html"""
    account.rules.now = lambda: datetime.now(UTC).timestamp() + (account.rules.at - NOW)
    ebs = {"SnapshotId": account.snapshot, "VolumeInitializationRate": 300}  # 150 GiB: 512 s
    disk = {"BlockDeviceMappings": [{"DeviceName": "/dev/sdf", "Ebs": ebs}]}
    assert len(run(account, 16, **disk)) == 16  # 4,800 MiB/s
    assert code(run, account, **disk) == "VolumeInitializationRateLimitExceeded"
    assert len(account.nodes) == 16
    account.rules.at += 600
    assert run(account, **disk)


# ---- schedules


TIME_LIMIT = {"DocumentName": "ddp-toolkit-sweeper", "Parameters": {"GraceMinutes": ["0"]}}


def schedule(
    account: Account, role: str, action: str, operation: str = "CreateSchedule", automation: Any = TIME_LIMIT
) -> None:
    """A time limit, a minute from now."""
    target = {"Arn": "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution", "Input": json.dumps(automation),
              "RoleArn": f"arn:aws:iam::{account.id}:role/{role}"}  # fmt: skip
    Aws("us-east-1").call("scheduler", operation, {
        "Name": "s", "ScheduleExpression": "at(2027-01-15T08:01:00)", "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": action, "Target": target,
    })  # fmt: skip


@pytest.mark.parametrize(("action", "is_updated"), [("DELETE", False), ("NONE", False), ("DELETE", True)])
def test_a_schedule_fires_once_ends_the_tagged_instances_and_goes(
    account: Account, action: str, is_updated: bool
) -> None:
    """https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-delete.html"""
    ours, theirs = run(account), run(account, TagSpecifications=[])
    schedule(account, SCHEDULER_ROLE, action)
    if is_updated:  # as a launch does whose nodes were waited for; moto forgets that it is enabled
        schedule(account, SCHEDULER_ROLE, action, "UpdateSchedule")
    states(account), states(account)
    assert {node["State"]["Name"] for node in states(account).values()} == {"running"}
    account.rules.at += 60
    assert [states(account)[name]["State"]["Name"] for name in (*ours, *theirs)] == ["shutting-down", "running"]
    left = Aws("us-east-1").pages("scheduler", "ListSchedules", "Schedules")
    assert [(one["Name"], one["State"]) for one in left] == [("s", "DISABLED")] * (action == "NONE")


@pytest.mark.parametrize(
    "automation",
    [
        TIME_LIMIT,
        {"DocumentName": "AWS-TerminateEC2Instance", "TargetParameterName": "InstanceId",
         "Targets": [{"Key": "tag:aws-ddp-toolkit:job", "Values": ["j"]}]},
    ],
    ids=["the time limit, early", "AWS's document"],
)  # fmt: skip
def test_another_schedule_ends_no_node_before_its_deadline(account: Account, automation: Any) -> None:
    """No condition key of IAM's limits the targets of a schedule, see
    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazoneventbridgescheduler.html
    """
    tags = TAGS | {"aws-ddp-toolkit:deadline": "2027-01-15T09:00:00Z"}
    run(account, TagSpecifications=[
        {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
    ])  # fmt: skip
    schedule(account, SCHEDULER_ROLE, "DELETE", automation=automation)
    states(account), states(account)
    account.rules.at += 60
    assert [node["State"]["Name"] for node in states(account).values()] == ["running"]
    assert Aws("us-east-1").pages("scheduler", "ListSchedules", "Schedules") == []  # it has fired


@pytest.mark.parametrize("lacking", ["ssm:StartAutomationExecution", "iam:PassRole"])
def test_a_schedule_whose_role_may_not_start_the_sweeper_ends_nothing(
    account: Account, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are needed: https://docs.aws.amazon.com/systems-manager/latest/userguide/automation-setup-iam.html"""
    statements = [one for one in policy("scheduler")["Statement"] if one["Action"] != lacking]
    less = {"scheduler": {"Statement": statements}, "sweeper": policy("sweeper")}
    monkeypatch.setattr(scheduler, "policy", less.__getitem__)
    run(account)
    schedule(account, SCHEDULER_ROLE, "DELETE")
    states(account), states(account)
    account.rules.at += 60
    assert [node["State"]["Name"] for node in states(account).values()] == ["running"]


def test_a_schedule_needs_a_role_that_it_may_assume(account: Account) -> None:
    """https://docs.aws.amazon.com/scheduler/latest/UserGuide/setting-up.html#setting-up-execution-role"""
    assert code(schedule, account, "nobody", "DELETE") == "ValidationException"
