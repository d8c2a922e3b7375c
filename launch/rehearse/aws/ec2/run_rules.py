"""What RunInstances refuses by its parameters alone: a table of rules, each with AWS's code, words and document."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import EC2ClientError

Params = Mapping[str, Any]
GUIDE = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide"
API = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference"


@dataclass(frozen=True)
class Rule:
    """is_broken: by these parameters; document: of AWS's, that says so."""

    is_broken: Callable[[Params], bool]
    code: str
    message: str
    document: str


def check(params: Params) -> None:
    """Raises AWS's error for the first broken rule."""
    for rule in RULES:
        if rule.is_broken(params):
            raise EC2ClientError(rule.code, rule.message)


def _interfaces(params: Params) -> list[Mapping[str, Any]]:
    return list(params.get("NetworkInterfaces") or ())


def _disks(params: Params) -> list[Mapping[str, Any]]:
    return [mapping["Ebs"] for mapping in params.get("BlockDeviceMappings") or () if "Ebs" in mapping]


def _options(params: Params) -> Mapping[str, Any]:
    return (params.get("InstanceMarketOptions") or {}).get("SpotOptions") or {}


def _asks_for_address_with_several_interfaces(params: Params) -> bool:
    interfaces = _interfaces(params)
    return len(interfaces) > 1 and any("AssociatePublicIpAddress" in one for one in interfaces)


def _names_network_twice(params: Params) -> bool:
    return bool(_interfaces(params)) and bool(params.get("SubnetId") or params.get("SecurityGroupIds"))


def _has_no_first_interface(params: Params) -> bool:
    first = [one for one in _interfaces(params) if not one.get("DeviceIndex") and not one.get("NetworkCardIndex")]
    return bool(_interfaces(params)) and len(first) != 1


def _rate_is_out_of_range(params: Params) -> bool:
    rates = [disk["VolumeInitializationRate"] for disk in _disks(params) if disk.get("VolumeInitializationRate")]
    return any(not 100 <= int(rate) <= 300 for rate in rates)


def _rate_without_snapshot(params: Params) -> bool:
    return any(disk.get("VolumeInitializationRate") and not disk.get("SnapshotId") for disk in _disks(params))


def _gp3_is_unbalanced(params: Params) -> bool:
    disks = [disk for disk in _disks(params) if disk.get("VolumeType") == "gp3"]
    return any(int(disk.get("Throughput") or 125) > int(disk.get("Iops") or 3000) / 4 for disk in disks)


def _user_data_is_too_long(params: Params) -> bool:
    return len(base64.b64decode(params.get("UserData") or "")) > 16_384


RULES = (
    Rule(
        lambda params: len(params.get("ClientToken") or "") > 64,
        "InvalidParameterValue",
        "Invalid value for clientToken: up to 64 ASCII characters",
        "https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html",
    ),
    Rule(
        lambda params: int(params["MinCount"]) > int(params["MaxCount"]),
        "InvalidParameterCombination",
        "MinCount may not exceed MaxCount",
        f"{API}/API_RunInstances.html",
    ),
    Rule(_user_data_is_too_long, "InvalidParameterValue", "User data is limited to 16384 bytes",
         f"{GUIDE}/instancedata-add-user-data.html"),
    Rule(
        _names_network_twice,
        "InvalidParameterCombination",
        "Network interfaces and an instance-level subnet ID may not be specified on the same request",
        f"{API}/API_RunInstances.html",
    ),
    Rule(
        _has_no_first_interface,
        "InvalidParameterCombination",
        "When specifying network interfaces, exactly one must have device index 0 on network card 0",
        f"{GUIDE}/using-eni.html#network-cards",
    ),
    Rule(
        _asks_for_address_with_several_interfaces,
        "InvalidParameterCombination",
        "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.",
        f"{GUIDE}/using-instance-addressing.html#concepts-public-addresses",
    ),
    Rule(
        lambda params: "ValidUntil" in _options(params) and _options(params).get("SpotInstanceType") == "one-time",
        "InvalidParameterCombination",
        "ValidUntil is for persistent Spot requests",
        f"{API}/API_SpotMarketOptions.html",
    ),
    Rule(
        lambda params: _options(params).get("InstanceInterruptionBehavior", "terminate") != "terminate"
        and _options(params).get("SpotInstanceType", "one-time") == "one-time",
        "InvalidParameterCombination",
        "One-time Spot instances are terminated when they are interrupted",
        f"{API}/API_SpotMarketOptions.html",
    ),
    Rule(_rate_is_out_of_range, "InvalidParameterValue", "VolumeInitializationRate must be from 100 to 300",
         f"{API}/API_EbsBlockDevice.html"),
    Rule(_rate_without_snapshot, "InvalidParameterCombination", "VolumeInitializationRate needs a SnapshotId",
         "https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html"),
    Rule(_gp3_is_unbalanced, "InvalidParameterCombination",
         "Throughput (MiBps) to iops ratio is too high; maximum is 0.25",
         "https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html#gp3-performance"),
)  # fmt: skip
