"""Placement groups, interfaces, security groups, reservations and prices, as in EC2 where moto differs."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError

from launch.rehearse.aws.ec2 import consistency
from launch.rehearse.aws.ec2.rules import Rules


def create_placement_group(rules: Rules, original: Any, response: Any) -> ActionResult:
    name, backend = response._get_param("GroupName"), response.ec2_backend
    if name in rules.placement_groups:
        raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    tags = response._parse_tag_specification("placement-group").get("placement-group", {})
    group = SimpleNamespace(
        group_name=name,
        group_id=f"pg-{uuid.uuid4().hex[:17]}",
        state="available",
        strategy=response._get_param("Strategy"),
        tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        region=backend.region_name,
    )
    rules.placement_groups[name] = group
    consistency.note(rules, name)
    return ActionResult({"PlacementGroup": vars(group)})


def describe_placement_groups(rules: Rules, original: Any, response: Any) -> ActionResult:
    wanted, filters = response._get_param("GroupNames", []), response._filters_from_querystring()
    for name in wanted:
        _known_group(rules, name)
    groups = [
        group
        for group in rules.placement_groups.values()
        if group.region == response.region
        and (not wanted or group.group_name in wanted)
        and all(_matches(group, name, values) for name, values in filters.items())
    ]
    return ActionResult({"PlacementGroups": [vars(group) for group in groups]})


def _matches(group: Any, name: str, values: Any) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in group.tags}
    if name == "tag-key":
        return any(value in tags for value in values)
    if name.startswith("tag:"):
        return tags.get(name.removeprefix("tag:")) in values
    return getattr(group, name.replace("-", "_")) in values


def delete_placement_group(rules: Rules, original: Any, response: Any) -> EmptyResult:
    name = response._get_param("GroupName")
    _known_group(rules, name)
    nodes = response.ec2_backend.all_instances()
    if any(node.placement.group_name == name and node.state != "terminated" for node in nodes):
        raise EC2ClientError("InvalidPlacementGroup.InUse", f"The placement group {name} is in use")
    del rules.placement_groups[name]
    return EmptyResult()


def _known_group(rules: Rules, name: str) -> None:
    if name not in rules.placement_groups:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")


def delete_network_interface(rules: Rules, original: Any, response: Any) -> Any:
    interface = response.ec2_backend.enis.get(response._get_param("NetworkInterfaceId"))
    if interface is not None and interface.instance is not None:
        raise EC2ClientError("InvalidParameterValue", f"Network interface '{interface.id}' is currently in use.")
    return original(response)


def create_security_group(rules: Rules, original: Any, backend: Any, *args: Any, **named: Any) -> Any:
    group = original(backend, *args, **named)
    consistency.note(rules, group.id)
    return group


def delete_security_group(
    rules: Rules, original: Any, backend: Any, name: str | None = None, group_id: str | None = None
) -> None:
    group = backend.get_security_group_from_id(group_id) if group_id else None
    if group is not None and (_is_named_by_others(backend, group) or _has_interfaces(backend, group)):
        raise EC2ClientError("DependencyViolation", f"resource {group.id} has a dependent object")
    original(backend, name, group_id)


def _is_named_by_others(backend: Any, group: Any) -> bool:
    """Whether a rule of another security group names this one."""
    for groups in backend.groups.values():
        for other in groups.values():
            sources = [rule.source_group.get("GroupId") for rule in (*other.ingress_rules, *other.egress_rules)]
            if other.id != group.id and group.id in sources:
                return True
    return False


def _has_interfaces(backend: Any, group: Any) -> bool:
    return any(group in interface._group_set for interface in backend.enis.values())


def describe_capacity_reservations(rules: Rules, original: Any, response: Any) -> ActionResult:
    wanted = response._get_param("CapacityReservationIds", [])
    for name in wanted:
        if name not in rules.reservations:
            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{name}' does not exist"
            )
    chosen = [reservation for name, reservation in rules.reservations.items() if not wanted or name in wanted]
    return ActionResult({"CapacityReservations": [vars(reservation) for reservation in chosen]})


def take(rules: Rules, name: str, kind: str, zone: str, count: int) -> None:
    """Takes `count` instances out of a reservation."""
    reservation = rules.reservations.get(name)
    if reservation is None:
        raise EC2ClientError(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{name}' does not exist"
        )
    is_other = (reservation.instance_type, reservation.availability_zone) != (kind, zone)
    if is_other or reservation.available_instance_count < count:
        raise EC2ClientError(
            "ReservationCapacityExceeded", "The requested reservation does not have sufficient compatible capacity."
        )
    reservation.available_instance_count -= count


def describe_spot_price_history(rules: Rules, original: Any, response: Any) -> ActionResult:
    result = original(response)
    for row in result.result["SpotPriceHistory"]:
        row["SpotPrice"] = f"{rules.spot_usd.get(row['AvailabilityZone'], 0.00001):.6f}"
    return cast(ActionResult, result)
