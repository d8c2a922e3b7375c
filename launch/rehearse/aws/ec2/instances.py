"""The states of instances, their capacity reservations and spot prices, where moto differs from EC2."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any, cast

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance, InstanceState, StateReason

from launch.rehearse.aws.access import locked
from launch.rehearse.aws.ec2.ebs import attachments
from launch.rehearse.aws.ec2.rules import Rules

_terminate_at_once = Instance.terminate  # moto's own
USER_ASKED = "Client.UserInitiatedShutdown: User initiated shutdown"
# About an hour:
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html
REMEMBERED_S = 3600.0


def describe_instances(rules: Rules, original: Any, response: Any) -> ActionResult:
    _forget(rules, response.ec2_backend)
    hidden = {node.id for node in response.ec2_backend.all_instances() if not _shows(rules, node)}
    for name in response._get_param("InstanceIds", []):
        if name in hidden:
            raise EC2ClientError("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist")
    result = original(response)
    reservations = []
    for reservation in result.result["Reservations"]:
        shown = copy.copy(reservation)
        shown.instances = [node for node in reservation.instances if node.id not in hidden]
        if shown.instances:
            reservations.append(shown)
    result.result["Reservations"] = reservations
    return cast(ActionResult, result)


def _shows(rules: Rules, instance: Any) -> bool:
    """Whether a node is in this answer; each answer brings it closer to its next state."""
    if getattr(instance, "hidden_for", 0) > 0:
        instance.hidden_for -= 1
        return False
    instance.shown_for = getattr(instance, "shown_for", 0) - 1
    if instance.shown_for < 0 and instance.state == "pending":
        if rules.failed_starts:
            end(rules, instance, rules.failed_starts.pop(0))
        else:
            set_state(instance, "running", 0)
    elif instance.shown_for < 0 and instance.state == "shutting-down":
        finish(rules, instance)
    return True


def _forget(rules: Rules, backend: Any) -> None:
    """Remove instances that ended more than an hour ago."""
    for reservation in backend.reservations.values():
        reservation.instances = [node for node in reservation.instances if not _is_old(node, rules.now())]


def _is_old(instance: Any, now: float) -> bool:
    return instance.state == "terminated" and now - getattr(instance, "terminated_at", now) > REMEMBERED_S


def transition(reason: str, now: float) -> str:
    """StateTransitionReason of an instance that ends for `reason`: only what the API did has a time.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html#troubleshooting-launch-internal
    """
    code = reason.partition(":")[0]
    if code == "Client.UserInitiatedShutdown":
        return f"User initiated ({datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} GMT)"
    if code == "Client.InstanceInitiatedShutdown":
        return "User initiated"
    return code if code.startswith("Server.") else reason


CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


def set_state(instance: Any, state: str, shown_for: int) -> None:
    instance._state, instance.shown_for = InstanceState(state, CODES[state]), shown_for


def terminate(rules: Rules, original: Any, instance: Any) -> InstanceState:
    before: InstanceState = end(rules, instance, USER_ASKED)
    return before


@locked
def end(rules: Rules, instance: Any, reason: str) -> InstanceState:
    """Begin to end a node for `reason`, in EC2's words; do nothing if it is ending already."""
    before: InstanceState = copy.copy(instance._state)
    if before.name not in ("shutting-down", "terminated"):
        set_state(instance, "shutting-down", rules.slow.ending)
        instance.state_reason = StateReason(reason, reason.split(":")[0])
        instance._reason = transition(reason, rules.now())
        if not rules.slow.ending:
            finish(rules, instance)
    return before


def finish(rules: Rules, instance: Any) -> None:
    """End a node, with the volumes and network interfaces that are deleted on termination."""
    reason, interfaces = instance.state_reason, instance.network_interfaces
    for device, mapping in list(instance.block_device_mapping.items()):
        volume = instance.ec2_backend.volumes.get(mapping.volume_id)
        if volume is not None and len(attachments(volume)) > 1:  # deleted with the last node that has it
            instance.ec2_backend.detach_volume(mapping.volume_id, instance.id, device)
    words = instance._reason
    _terminate_at_once(instance)
    instance.state_reason, instance._reason, instance.terminated_at = reason, words, rules.now()
    if reservation := rules.reservations.get(getattr(instance, "reserved", None) or ""):
        reservation.available_instance_count += 1
    for interface in interfaces:
        if interface.delete_on_termination and interface.id in instance.ec2_backend.enis:
            interface.delete()


# ---- reservations and prices


def describe_capacity_reservations(rules: Rules, original: Any, response: Any) -> ActionResult:
    requested = response._get_param("CapacityReservationIds", [])
    for name in requested:
        if name not in rules.reservations:
            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{name}' does not exist"
            )
    chosen = [reservation for name, reservation in rules.reservations.items() if not requested or name in requested]
    return ActionResult({"CapacityReservations": [vars(reservation) for reservation in chosen]})


def take(rules: Rules, name: str, kind: str, zone: str, count: int) -> None:
    """Use `count` instances of a reservation."""
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


def get_spot_placement_scores(rules: Rules, original: Any, response: Any) -> ActionResult:
    """The ten best zones, with 3 for those without a set score, as for fewer than three types.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetSpotPlacementScores.html
    """
    regions = response._get_param("RegionNames", [])
    zones = [zone for zone in response.ec2_backend.describe_availability_zones() if zone.region_name in regions]
    rows = [
        {"Region": zone.region_name, "AvailabilityZoneId": zone.zone_id, "Score": rules.spot_scores.get(zone.name, 3)}
        for zone in zones
    ]
    return ActionResult({"SpotPlacementScores": sorted(rows, key=lambda row: -row["Score"])[:10]})
