"""The requests for instances: RunInstances, their security group and time limit, and what deletes each.  Pure."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from launch.aws.instances.facts import Ami
from launch.aws.names import SWEEPER_DOCUMENT, TOOLKIT, group_name
from launch.aws.network import DNS_PORT, read_proxy
from launch.core.plan import FromAnswer, Request
from launch.core.price import Volume

Tags = list[dict[str, str]]

USER_DATA_LIMIT = 16_384  # bytes, before base64

# EC2's errors for resources that were created a moment ago.
NOT_YET = ("InvalidGroup.NotFound", "InvalidPlacementGroup.Unknown", "InvalidVolume.NotFound",
           "InvalidInstanceID.NotFound")  # fmt: skip
# RunInstances' errors after which another zone may work.
NO_CAPACITY = {
    "InsufficientInstanceCapacity": "no capacity",
    "InsufficientHostCapacity": "no capacity",
    "InsufficientReservedInstanceCapacity": "reservation full",
    "ReservationCapacityExceeded": "reservation full",
    "Unsupported": "not supported here: {error}",
    # Spot: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
    "UnfulfillableCapacity": "no capacity",
    "InsufficientCapacity": "no capacity",
    "InsufficientFreeAddressesInSubnet": "no addresses left in the subnet",
    "InsufficientVolumeCapacity": "no capacity for the volumes",
    "SpotMaxPriceTooLow": "spot price over the limit",
    # Nodes that shut down hold their group's zone: github.com/hashicorp/terraform/issues/16183
    "InvalidPlacementGroup.InUse": "the placement group is still in use in another zone",
}
HOP_LIMIT = 1  # only the node, and containers in its network namespace as the training's, can use the role


# ---- the instances


def as_user_data(script: str) -> str | bytes:
    """A boot script as EC2 takes it: compressed if it is too long, which cloud-init undoes.

    https://docs.cloud-init.io/en/latest/explanation/format/index.html, gzip compressed content
    """
    content = script.encode()
    return script if len(content) <= USER_DATA_LIMIT else gzip.compress(content, mtime=0)


@dataclass(frozen=True)
class Start:
    """A request for `count` instances, all or none.

    They are terminated by a shutdown, have IMDSv2 alone, no key pair, and an encrypted root volume.
    """

    count: int
    type: str
    ami: Ami
    root: Volume  # gp3
    token: str  # equal for requests that must have one effect
    profile: str  # the instance profile
    interfaces: Sequence[Mapping[str, Any]]
    user_data: str  # the boot script
    tags: Tags  # of the instances, their volumes and network interfaces
    own_tags: Mapping[str, str]  # of the instances only
    volumes: Sequence[Mapping[str, Any]] = ()  # block device mappings other than the root volume
    more: Mapping[str, Any] = field(default_factory=dict)  # further parameters

    def request(self, why: str, name: str) -> Request:
        """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html"""
        own = [{"Key": key, "Value": value} for key, value in self.own_tags.items()]
        params: dict[str, Any] = {
            "ImageId": self.ami.id,
            "InstanceType": self.type,
            "MinCount": self.count,
            "MaxCount": self.count,
            "ClientToken": self.token,
            "IamInstanceProfile": {"Name": self.profile},
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {
                "HttpTokens": "required",
                "HttpEndpoint": "enabled",
                "HttpPutResponseHopLimit": HOP_LIMIT,
            },
            "NetworkInterfaces": list(self.interfaces),
            "BlockDeviceMappings": [self._root(), *self.volumes],
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [*self.tags, *own]},
                {"ResourceType": "volume", "Tags": self.tags},
                {"ResourceType": "network-interface", "Tags": self.tags},
            ],
            "UserData": as_user_data(self.user_data),
            **self.more,
        }
        return Request("ec2", "RunInstances", params, why, name=name, retry_after=NOT_YET)

    def _root(self) -> dict[str, Any]:
        disk = {
            "VolumeSize": self.root.gib,
            "VolumeType": self.root.kind,
            "Throughput": self.root.throughput_mib_per_s,
            "Encrypted": True,
            "DeleteOnTermination": True,
        }
        return {"DeviceName": self.ami.root_device, "Ebs": disk}


# ---- the security group

HTTPS: Mapping[str, Any] = {
    "IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "0.0.0.0/0"}],
}  # fmt: skip
EVERYWHERE: Mapping[str, Any] = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
EVERYWHERE_IPV6: Mapping[str, Any] = {"IpProtocol": "-1", "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}
NEW_GROUP = FromAnswer("security group", "GroupId")  # the group that security_group() creates


def security_group(job: str, description: str, vpc: str, tags: Tags, why: str) -> Request:
    """The request for a job's group, without its rules."""
    params = {
        "GroupName": group_name(job),
        "Description": description,
        "VpcId": vpc,
        "TagSpecifications": [{"ResourceType": "security-group", "Tags": tags}],
    }
    return Request("ec2", "CreateSecurityGroup", params, why, name=NEW_GROUP.request)


def inbound(group: str | FromAnswer, permissions: Sequence[Any], why: str) -> Request:
    return _rule("AuthorizeSecurityGroupIngress", group, permissions, why, "InvalidPermission.Duplicate")


def outbound(group: str | FromAnswer, permissions: Sequence[Any], why: str) -> Request:
    return _rule("AuthorizeSecurityGroupEgress", group, permissions, why, "InvalidPermission.Duplicate")


def outbound_dns(group: str | FromAnswer, servers: Sequence[str]) -> list[Request]:
    """Allow requests to the VPC's own DNS servers; nothing without such servers.  TCP is for long answers.

    https://docs.aws.amazon.com/vpc/latest/userguide/VPC_DHCP_Options.html
    """
    if not servers:
        return []
    ranges = [{"CidrIp": f"{server}/32"} for server in servers]
    permissions = [
        {"IpProtocol": protocol, "FromPort": DNS_PORT, "ToPort": DNS_PORT, "IpRanges": ranges}
        for protocol in ("udp", "tcp")
    ]
    return [outbound(group, permissions, "outbound: the VPC's own DNS servers")]


def to_proxy(url: str | None) -> list[Mapping[str, Any]]:
    """The permission to reach a proxy, whose address is unknown; none for port 443, which is open."""
    port = read_proxy(url)[1] if url else HTTPS["FromPort"]
    return [] if port == HTTPS["FromPort"] else [{**HTTPS, "FromPort": port, "ToPort": port}]


def nothing_else_out(group: str | FromAnswer) -> list[Request]:
    """Remove the rules that EC2 adds to each new group; the second exists only in a VPC with IPv6.

    In other VPCs EC2 refuses IPv6 ranges, as Terraform's AWS provider documents: "InvalidParameterValue ...
    remote-ipv6-range".
    """
    gone = "InvalidPermission.NotFound"
    return [
        _rule("RevokeSecurityGroupEgress", group, [EVERYWHERE], "remove the allow-all rule", gone),
        _rule("RevokeSecurityGroupEgress", group, [EVERYWHERE_IPV6], "and that of IPv6", gone, "InvalidParameterValue"),
    ]


def _rule(operation: str, group: str | FromAnswer, permissions: Sequence[Any], why: str, *done_already: str) -> Request:
    params = {"GroupId": group, "IpPermissions": permissions}
    return Request("ec2", operation, params, why, done_already, retry_after=NOT_YET)


# ---- the time limit

SCHEDULE_GROUP = TOOLKIT
GRACE = timedelta(minutes=5)
GRACE_MINUTES = "GraceMinutes"  # the parameter of the sweeper's document in infra/cloudformation/account.yaml


def time_limit(job: str, deadline: datetime, role: str, *, exists: bool) -> list[Request]:
    """The requests for a one-time schedule, made before anything is billed.

    It ends machines by the deadline in their tags, which includes those that are started later.  The schedule's role
    can start only the sweeper, as AWS lets a launcher write any target into a schedule.
    """
    automation = {"DocumentName": SWEEPER_DOCUMENT, "Parameters": {GRACE_MINUTES: ["0"]}}
    schedule = {
        "Name": group_name(job),
        "GroupName": SCHEDULE_GROUP,
        # Later than the machines' own timers.
        "ScheduleExpression": f"at({deadline + GRACE:%Y-%m-%dT%H:%M:%S})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution",
            "RoleArn": role,
            "Input": json.dumps(automation),
        },
    }
    group = Request(
        "scheduler",
        "CreateScheduleGroup",
        {"Name": SCHEDULE_GROUP, "Tags": [{"Key": SCHEDULE_GROUP, "Value": "time limits"}]},
        "create the schedule group",
        ("ConflictException",),
    )
    why = "terminate the nodes of the job at its time limit"
    if exists:
        return [Request("scheduler", "UpdateSchedule", schedule, why)]
    # The group has only just been created.
    not_yet = ("ResourceNotFoundException",)
    return [group, Request("scheduler", "CreateSchedule", schedule, why, ("ConflictException",), retry_after=not_yet)]


# ---- the removal

# Error codes for resources that no longer exist.
GONE = ("InvalidInstanceID.NotFound", "InvalidVolume.NotFound", "InvalidGroup.NotFound", "InvalidGroupId.NotFound",
        "InvalidPlacementGroup.Unknown", "InvalidNetworkInterfaceID.NotFound", "ResourceNotFoundException")  # fmt: skip


def deletion(kind: str, name: str, why: str = "") -> Request:
    """The request that deletes a resource."""
    service, operation, params = {
        "volume": ("ec2", "DeleteVolume", {"VolumeId": name}),
        "network-interface": ("ec2", "DeleteNetworkInterface", {"NetworkInterfaceId": name}),
        "security-group": ("ec2", "DeleteSecurityGroup", {"GroupId": name}),
        "placement-group": ("ec2", "DeletePlacementGroup", {"GroupName": name}),
        "schedule": ("scheduler", "DeleteSchedule", {"GroupName": SCHEDULE_GROUP, "Name": name}),
    }[kind]
    return Request(service, operation, params, why, GONE)
