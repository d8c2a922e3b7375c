"""Rules of the security groups that are made for machines on EC2.  Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from launch.core.steps import FromAnswer, Request

# EC2's errors for what it made a moment ago.
NOT_YET = ("InvalidGroup.NotFound", "InvalidPlacementGroup.Unknown", "InvalidVolume.NotFound",
           "InvalidInstanceID.NotFound")  # fmt: skip
HTTPS: Mapping[str, Any] = {
    "IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "0.0.0.0/0"}],
}  # fmt: skip
EVERYWHERE: Mapping[str, Any] = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
EVERYWHERE_IPV6: Mapping[str, Any] = {"IpProtocol": "-1", "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}


def inbound(group: str | FromAnswer, permissions: Sequence[Any], why: str) -> Request:
    return _rule("AuthorizeSecurityGroupIngress", group, permissions, why, "InvalidPermission.Duplicate")


def outbound(group: str | FromAnswer, permissions: Sequence[Any], why: str) -> Request:
    return _rule("AuthorizeSecurityGroupEgress", group, permissions, why, "InvalidPermission.Duplicate")


def nothing_else_out(group: str | FromAnswer) -> list[Request]:
    """Without the rules that EC2 gives each new group: the second one in a VPC that has IPv6.

    Elsewhere it refuses addresses of IPv6, as the AWS provider of Terraform notes: "InvalidParameterValue ...
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
