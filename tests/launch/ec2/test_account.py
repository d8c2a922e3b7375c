"""tests.launch.ec2.account and mended: that the stand-in does what AWS does where moto alone does not."""

import base64
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.core.errors import AwsError
from tests.launch.ec2.account import Account

TAGS = [{"Key": "aws-ddp-toolkit:job", "Value": "j"}]


def launch(account: Account, aws: Aws, count: int = 1, **more: Any) -> list[str]:
    """Starts nodes much as a plan does, and returns their ids."""
    zone, kind = more.pop("zone", "us-east-1a"), more.pop("kind", "g5.2xlarge")
    group = more.pop("group", None)
    params = {
        "ImageId": account.ami,
        "InstanceType": kind,
        "MinCount": count,
        "MaxCount": count,
        "ClientToken": "token",
        "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": account.subnets[zone], "DeleteOnTermination": True}
                              | ({"Groups": [group]} if group else {})],
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75, "DeleteOnTermination": True}}],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": TAGS} for kind in ("instance", "volume", "network-interface")
        ],
    }  # fmt: skip
    return [i["InstanceId"] for i in aws.call("ec2", "RunInstances", params | more)["Instances"]]


def states(aws: Aws) -> list[str]:
    reservations = aws.pages("ec2", "DescribeInstances", "Reservations")
    return [i["State"]["Name"] for r in reservations for i in r["Instances"]]


def refusal(act: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(AwsError) as caught:
        act(*args, **named)
    return caught.value.aws_code


def test_the_same_request_gets_the_same_volume(account: Account, aws: Aws) -> None:
    ask = {"AvailabilityZone": "us-east-1a", "Size": 10, "VolumeType": "gp3", "ClientToken": "v"}

    assert aws.call("ec2", "CreateVolume", ask)["VolumeId"] == aws.call("ec2", "CreateVolume", ask)["VolumeId"]
    assert refusal(aws.call, "ec2", "CreateVolume", ask | {"Size": 11}) == "IdempotentParameterMismatch"


def test_a_volume_for_many_is_attached_to_running_nodes_of_its_zone(account: Account, aws: Aws) -> None:
    ask = {"AvailabilityZone": "us-east-1a", "Size": 100, "VolumeType": "io2", "Iops": 1000, "MultiAttachEnabled": True}
    volume = aws.call("ec2", "CreateVolume", ask)["VolumeId"]
    here = launch(account, aws, 2)
    (there,) = launch(account, aws, zone="us-east-1b", ClientToken="another")

    def attach(node: str) -> Any:
        return aws.call("ec2", "AttachVolume", {"VolumeId": volume, "InstanceId": node, "Device": "/dev/sdf"})

    assert refusal(attach, here[0]) == "IncorrectState"
    states(aws), states(aws)
    for node in here:
        attach(node)
    assert refusal(attach, here[0]) == "VolumeInUse"
    assert refusal(attach, there) == "InvalidVolume.ZoneMismatch"
    (shown,) = aws.call("ec2", "DescribeVolumes", {"VolumeIds": [volume]})["Volumes"]
    assert [a["InstanceId"] for a in shown["Attachments"]] == here

    account.slow.ending = 0
    account.kill(here[0])
    assert refusal(aws.call, "ec2", "DeleteVolume", {"VolumeId": volume}) == "VolumeInUse"
    account.kill(here[1])
    aws.call("ec2", "DeleteVolume", {"VolumeId": volume})


@pytest.mark.parametrize(
    ("capacity", "zone", "kind", "count", "starts"),
    [
        ({"us-east-1a": 0}, "us-east-1a", "g5.2xlarge", 1, False),
        ({"us-east-1a": 0}, "us-east-1b", "g5.2xlarge", 1, True),
        ({"us-east-1a": 2}, "us-east-1a", "g5.2xlarge", 2, True),
        ({"us-east-1a": 2}, "us-east-1a", "g5.2xlarge", 3, False),
        ({"g5.2xlarge": 0}, "us-east-1a", "g5.2xlarge", 1, False),
        ({"g5.2xlarge": 0}, "us-east-1a", "g6.2xlarge", 1, True),
        ({("g5.2xlarge", "us-east-1a"): 0}, "us-east-1a", "g5.2xlarge", 1, False),
        ({("g5.2xlarge", "us-east-1a"): 0}, "us-east-1b", "g5.2xlarge", 1, True),
        ({("g5.2xlarge", "us-east-1a"): 0}, "us-east-1a", "g6.2xlarge", 1, True),
    ],
)
def test_capacity_is_by_zone_type_or_both(account, aws, capacity, zone, kind, count, starts) -> None:  # type: ignore[no-untyped-def]
    account.capacity |= capacity

    if starts:
        assert len(launch(account, aws, count, zone=zone, kind=kind)) == count
    else:
        assert refusal(launch, account, aws, count, zone=zone, kind=kind) == "InsufficientInstanceCapacity"
        assert account.left() == []


def test_the_quota_counts_vcpus_of_a_family_and_a_market(account: Account, aws: Aws) -> None:
    account.quota["L-DB2E81BA"] = 16.0
    account.quota["L-3819A6DF"] = 8.0
    quota = aws.call("service-quotas", "GetServiceQuota", {"ServiceCode": "ec2", "QuotaCode": "L-DB2E81BA"})["Quota"]
    launch(account, aws, 2)
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}

    assert quota["Value"] == 16.0
    assert refusal(launch, account, aws, ClientToken="2") == "VcpuLimitExceeded"
    launch(account, aws, ClientToken="3", **spot)
    assert refusal(launch, account, aws, ClientToken="4", **spot) == "MaxSpotInstanceCountExceeded"
    launch(account, aws, ClientToken="5", kind="c5.large")


def test_a_reservation_is_found_and_used_up(account: Account, aws: Aws) -> None:
    name = account.reserve("us-east-1a", "g5.2xlarge", 2)
    into = {"CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": name}}}
    asked = {"CapacityReservationIds": [name]}

    launch(account, aws, 2, **into)
    (found,) = aws.call("ec2", "DescribeCapacityReservations", asked)["CapacityReservations"]
    assert (found["AvailableInstanceCount"], found["State"]) == (0, "active")
    assert refusal(launch, account, aws, ClientToken="2", **into) == "ReservationCapacityExceeded"
    unknown = {"CapacityReservationIds": ["cr-1"]}
    assert refusal(aws.call, "ec2", "DescribeCapacityReservations", unknown) == "InvalidCapacityReservationId.NotFound"


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("InvalidAMIID.NotFound", {"ImageId": "ami-0123456789abcdef0"}),
        ("InvalidParameterValue", {"UserData": base64.b64encode(b"x" * 0).decode() + "x" * 16_385}),
        ("InvalidParameterValue", {"IamInstanceProfile": {"Name": "nobody"}}),
        ("InvalidGroup.NotFound", {"group": "sg-0123456789abcdef0"}),
        ("Unsupported", {"kind": "g5.2xlarge", "zone": "us-east-1e"}),
        (
            "InvalidSnapshot.NotFound",
            {"BlockDeviceMappings": [{"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": "snap-0123456789abcdef0"}}]},
        ),
    ],
)
def test_what_aws_would_refuse_is_refused_before_anything_starts(account, aws, code, more) -> None:  # type: ignore[no-untyped-def]
    assert refusal(launch, account, aws, **more) == code
    assert account.left() == []
