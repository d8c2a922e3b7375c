"""RunInstances where moto differs from EC2: its parameters, quotas and capacity, and its answer.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.utils import filter_iam_instance_profiles
from moto.iam.exceptions import NotFoundException

from launch.rehearse.aws.ec2.ebs import check_root, tune
from launch.rehearse.aws.ec2.instances import set_state, take
from launch.rehearse.aws.ec2.network import give_addresses
from launch.rehearse.aws.ec2.rules import QUOTAS, Rules, mark_new, once


def call_action(rules: Rules, original: Any, response: Any) -> Any:
    """Answer any request with moto's own method, but under the lock."""
    return original(response)


def run_instances(rules: Rules, original: Any, response: Any) -> Any:
    try:
        return once(rules, response, lambda: _started(rules, original, response))
    except EC2ClientError as error:
        if error.code not in SERVER_ERRORS:
            raise
        # EC2 counts it among its own errors, which botocore retries.
        _, headers, body = response.serialized(ActionResult(error))
        return 500, headers | {"status": 500}, body


def _started(rules: Rules, original: Any, response: Any) -> ActionResult:
    ask, backend = response._get_param, response.ec2_backend
    _check_parameters(response.params)
    _check_references(ask, backend, response)
    _check_room(rules, ask, backend)
    result = original(response)
    tags = response._parse_tag_specification().get("network-interface", {})
    for instance in result.result.instances:
        instance._placement.group_name = ask("Placement.GroupName", "")
        set_state(instance, "pending" if rules.slow.pending else "running", rules.slow.pending)
        instance.hidden_for = rules.slow.hidden
        give_addresses(backend, instance, ask("NetworkInterfaces", []))
        for interface, requested in zip(instance.network_interfaces, ask("NetworkInterfaces", []), strict=False):
            interface.add_tags(tags)
            interface.private_ip_address = rules.address(interface.private_ip_address)
            interface.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": interface.private_ip_address}]
            interface.interface_type = requested.get("InterfaceType", "interface")
            interface.card = requested.get("NetworkCardIndex", 0)
        for mapping in ask("BlockDeviceMappings", []):
            volume = backend.get_volume(instance.block_device_mapping[mapping["DeviceName"]].volume_id)
            tune(volume, mapping["Ebs"])
        instance.reserved = ask(RESERVATION)
        mark_new(rules, instance.id)
        instance.is_complete = True  # moto lists it long before it has its disks
    return cast(ActionResult, result)


def _check_references(ask: Any, backend: Any, response: Any) -> None:
    """Raise for resources that do not exist.  moto checks some of them only after creating half of the nodes."""
    disks = [mapping["Ebs"] for mapping in ask("BlockDeviceMappings", [])]
    backend.describe_snapshots([disk["SnapshotId"] for disk in disks if disk.get("SnapshotId")])
    if ask("ImageId") in backend.amis:  # moto itself refuses others
        check_root(backend.amis[ask("ImageId")], ask("BlockDeviceMappings", []))
    for interface in ask("NetworkInterfaces", []):
        _check_groups(interface.get("Groups") or [], backend)
    if name := ask("IamInstanceProfile.Name"):
        _check_profile(name, response)


def _check_groups(groups: list[str], backend: Any) -> None:
    for group in groups:
        if backend.get_security_group_from_id(group) is None:
            raise EC2ClientError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")


def _check_profile(name: str, response: Any) -> None:
    try:
        filter_iam_instance_profiles(response.current_account, response.partition, None, name)
    except NotFoundException as error:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        ) from error


def cpu_options(instance: Any) -> dict[str, int]:
    cpu = INSTANCE_TYPES[instance.instance_type]["VCpuInfo"]
    return {"CoreCount": cpu["DefaultCores"], "ThreadsPerCore": cpu["DefaultThreadsPerCore"]}


def interfaces_of(instance: Any) -> list[Any]:
    """All interfaces.  moto keeps one per device index, although every network card has its own index 0."""
    return [interface for interface in instance.ec2_backend.enis.values() if interface.instance is instance]


def attachment(rules: Rules, original: Any, attachment: Any, interface: Any) -> None:
    original(attachment, interface)
    attachment.network_card_index = getattr(interface, "card", 0)


# ---- quotas and capacity


NO_CAPACITY = "InsufficientInstanceCapacity"
# AWS documents that the request fails, but no code.
TOO_FAST = "VolumeInitializationRateLimitExceeded"
# EC2 counts them among its own errors, with status 500.
SERVER_ERRORS = {NO_CAPACITY}
MIB_PER_GIB = 1024
RESERVATION = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"


def _check_room(rules: Rules, ask: Any, backend: Any) -> None:
    """Check placement group, zone, quotas, reservation and capacity, in this order."""
    kind, count, zone = ask("InstanceType"), int(ask("MinCount")), _zone(ask, backend)
    is_spot = ask("InstanceMarketOptions.MarketType") == "spot"
    group = ask("Placement.GroupName")
    if group and group not in rules.placement_groups:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{group}' is unknown.")
    _check_group(group, zone, backend)
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"][backend.region_name]
    if not any(row["InstanceType"] == kind and row["Location"] == zone for row in offered):
        raise EC2ClientError(
            "Unsupported",
            f"Your requested instance type ({kind}) is not supported in your requested Availability Zone ({zone}).",
        )
    if is_spot and not rules.has_spot_role:
        raise EC2ClientError(
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
        )
    _check_quota(rules, backend, kind, count, is_spot)
    _check_initialization(rules, ask, backend, count)
    reservation = ask(RESERVATION)
    if reservation:
        take(rules, reservation, kind, zone, count)
        return
    _check_capacity(rules, backend, kind, zone, count)


def _check_group(group: str, zone: str, backend: Any) -> None:
    """A cluster placement group is in one zone, until the last of its instances is terminated.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html
    """
    members = (node for node in backend.all_instances() if group and node.placement.group_name == group)
    if any(node.state != "terminated" and node.placement.zone != zone for node in members):
        raise EC2ClientError("InvalidPlacementGroup.InUse", f"The Placement Group '{group}' is in use in another zone.")


def _check_capacity(rules: Rules, backend: Any, kind: str, zone: str, count: int) -> None:
    used = [{node.instance_type, node.placement.zone} for node in backend.all_instances() if node.state != "terminated"]
    for key, limit in rules.capacity.items():
        limited = {key} if isinstance(key, str) else set(key)
        if limited <= {kind, zone} and sum(limited <= node for node in used) + count > limit:
            raise EC2ClientError(
                NO_CAPACITY,
                f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested "
                f"({zone}). Our system will be working on provisioning additional capacity.",
            )


def _zone(ask: Any, backend: Any) -> str:
    subnets = [interface["SubnetId"] for interface in ask("NetworkInterfaces", []) if "SubnetId" in interface]
    subnet = ask("SubnetId") or (subnets[0] if subnets else None)
    if subnet:
        return str(backend.get_subnet(subnet).availability_zone)
    return str(ask("Placement.AvailabilityZone") or backend.region_name + "a")


def _check_quota(rules: Rules, backend: Any, kind: str, count: int, is_spot: bool) -> None:
    code = next(code for code, (letters, spot) in QUOTAS.items() if spot == is_spot and kind.startswith(letters))
    letters, _ = QUOTAS[code]
    counted = [
        node.instance_type
        for node in backend.all_instances()
        if node.state in ("pending", "running")
        and node.instance_type.startswith(letters)
        and (node.lifecycle == "spot") == is_spot
    ]
    if sum(map(_vcpus, [*counted, *[kind] * count])) <= rules.quota[code]:
        return
    if is_spot:
        raise EC2ClientError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    raise EC2ClientError(
        "VcpuLimitExceeded",
        f"You have requested more vCPU capacity than your current vCPU limit of {rules.quota[code]:g} allows for the "
        "instance bucket that the specified instance type belongs to.",
    )


def _vcpus(kind: str) -> int:
    return int(INSTANCE_TYPES[kind]["VCpuInfo"]["DefaultVCpus"])


def _check_initialization(rules: Rules, ask: Any, backend: Any, count: int) -> None:
    """The rates of all volumes under initialization add up to at most the account's quota."""
    disks = [mapping.get("Ebs", {}) for mapping in ask("BlockDeviceMappings", [])]
    requested = count * sum(int(disk.get("VolumeInitializationRate") or 0) for disk in disks)
    if not requested:
        return
    now, in_use = rules.now(), 0
    for volume in backend.volumes.values():
        rate = getattr(volume, "volume_initialization_rate", None) or 0
        if rate and now - volume.create_time.timestamp() < volume.size * MIB_PER_GIB / int(rate):
            in_use += int(rate)
    if in_use + requested > rules.initialization_mib_s:
        raise EC2ClientError(
            TOO_FAST,
            f"The requested volume initialization rate exceeds your limit of {rules.initialization_mib_s} MiB/s.",
        )


# ---- parameters


Params = Mapping[str, Any]
GUIDE = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide"
API = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference"


@dataclass(frozen=True)
class Rule:
    """One documented reason for which RunInstances refuses its parameters."""

    is_broken: Callable[[Params], bool]
    code: str
    message: str
    document: str


def _check_parameters(params: Params) -> None:
    """Raise AWS's error for the first broken rule."""
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
