"""Whether there is room for new instances: zones, quotas, reservations and capacity, as in EC2.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from launch.rehearse.aws.ec2.network_resources import take
from launch.rehearse.aws.ec2.rules import QUOTAS, Rules

NO_CAPACITY = "InsufficientInstanceCapacity"
# AWS says that the request fails, but not with which code.
TOO_FAST = "VolumeInitializationRateLimitExceeded"
# EC2 counts them among its own errors, with status 500.
SERVER_ERRORS = {NO_CAPACITY}
MIB_PER_GIB = 1024
RESERVATION = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"


def check(rules: Rules, ask: Any, backend: Any) -> None:
    """Checks placement group, zone, quotas, reservation and capacity, in this order."""
    kind, count, zone = ask("InstanceType"), int(ask("MinCount")), _zone(ask, backend)
    is_spot = ask("InstanceMarketOptions.MarketType") == "spot"
    group = ask("Placement.GroupName")
    if group and group not in rules.placement_groups:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{group}' is unknown.")
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
    """The rates of all volumes that are being filled add up to at most the account's quota."""
    disks = [mapping.get("Ebs", {}) for mapping in ask("BlockDeviceMappings", [])]
    wanted = count * sum(int(disk.get("VolumeInitializationRate") or 0) for disk in disks)
    if not wanted:
        return
    now, filling = rules.now(), 0
    for volume in backend.volumes.values():
        rate = getattr(volume, "volume_initialization_rate", None) or 0
        if rate and now - volume.create_time.timestamp() < volume.size * MIB_PER_GIB / int(rate):
            filling += int(rate)
    if filling + wanted > rules.initialization_mib_s:
        raise EC2ClientError(
            TOO_FAST,
            f"The requested volume initialization rate exceeds your limit of {rules.initialization_mib_s} MiB/s.",
        )
