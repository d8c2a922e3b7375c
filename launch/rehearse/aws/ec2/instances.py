"""RunInstances and the states of instances, as in EC2 where moto differs."""

from __future__ import annotations

import base64
import copy
from typing import Any, cast

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceState, StateReason
from moto.ec2.utils import filter_iam_instance_profiles
from moto.iam.exceptions import NotFoundException

from launch.rehearse.aws.ec2.idempotency import once
from launch.rehearse.aws.ec2.network_resources import take
from launch.rehearse.aws.ec2.rules import QUOTAS, Rules
from launch.rehearse.aws.ec2.volumes import attachments, tune
from launch.rehearse.aws.moto_patches import locked

USER_DATA_LIMIT = 16_384
NO_CAPACITY = "InsufficientInstanceCapacity"
_terminate_at_once = Instance.terminate  # moto's own
USER_ASKED = "Client.UserInitiatedShutdown: User initiated shutdown"


def call_action(rules: Rules, original: Any, response: Any) -> Any:
    """moto's own answer to any request: replaced only so that it is made under the lock."""
    return original(response)


def run_instances(rules: Rules, original: Any, response: Any) -> Any:
    try:
        return once(rules, response, lambda: _started(rules, original, response))
    except EC2ClientError as error:
        if error.code != NO_CAPACITY:
            raise
        # EC2 counts it among its own errors, which botocore retries.
        _, headers, body = response.serialized(ActionResult(error))
        return 500, headers | {"status": 500}, body


def _started(rules: Rules, original: Any, response: Any) -> ActionResult:
    ask, backend = response._get_param, response.ec2_backend
    _check_references(ask, backend, response)
    _check_room(rules, ask, backend)
    result = original(response)
    tags = response._parse_tag_specification().get("network-interface", {})
    for instance in result.result.instances:
        instance._placement.group_name = ask("Placement.GroupName", "")
        _set(instance, "pending" if rules.slow.pending else "running", rules.slow.pending)
        instance.hidden_for = rules.slow.hidden
        for interface, wanted in zip(instance.network_interfaces, ask("NetworkInterfaces", []), strict=False):
            interface.add_tags(tags)
            interface.private_ip_address = rules.address(interface.private_ip_address)
            interface.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": interface.private_ip_address}]
            interface.interface_type = wanted.get("InterfaceType", "interface")
            interface.card = wanted.get("NetworkCardIndex", 0)
        for mapping in ask("BlockDeviceMappings", []):
            volume = backend.get_volume(instance.block_device_mapping[mapping["DeviceName"]].volume_id)
            tune(volume, mapping["Ebs"])
        instance.is_complete = True  # moto lists it long before it has its disks
    return cast(ActionResult, result)


def _check_references(ask: Any, backend: Any, response: Any) -> None:
    """Raises for what does not exist.  moto finds some of this out too late, when half of the nodes are made."""
    if len(base64.b64decode(ask("UserData") or "")) > USER_DATA_LIMIT:
        raise EC2ClientError("InvalidParameterValue", "User data is limited to 16384 bytes")
    disks = [mapping["Ebs"] for mapping in ask("BlockDeviceMappings", [])]
    backend.describe_snapshots([disk["SnapshotId"] for disk in disks if disk.get("SnapshotId")])
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


def _check_room(rules: Rules, ask: Any, backend: Any) -> None:
    """Checks placement group, zone, quota, reservation and capacity, in this order."""
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
    _check_quota(rules, backend, kind, count, is_spot)
    reservation = ask("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId")
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


def cpu_options(instance: Any) -> dict[str, int]:
    cpu = INSTANCE_TYPES[instance.instance_type]["VCpuInfo"]
    return {"CoreCount": cpu["DefaultCores"], "ThreadsPerCore": cpu["DefaultThreadsPerCore"]}


def interfaces_of(instance: Any) -> list[Any]:
    """All interfaces.  moto keeps one per device index, although every network card has its own index 0."""
    return [interface for interface in instance.ec2_backend.enis.values() if interface.instance is instance]


def attachment(rules: Rules, original: Any, attachment: Any, interface: Any) -> None:
    original(attachment, interface)
    attachment.network_card_index = getattr(interface, "card", 0)


def describe_instances(rules: Rules, original: Any, response: Any) -> ActionResult:
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
        _set(instance, "running", 0)
    elif instance.shown_for < 0 and instance.state == "shutting-down":
        finish(rules, instance)
    return True


CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


def _set(instance: Any, state: str, shown_for: int) -> None:
    instance._state, instance.shown_for = InstanceState(state, CODES[state]), shown_for


def terminate(rules: Rules, original: Any, instance: Any) -> InstanceState:
    before: InstanceState = end(rules, instance, USER_ASKED)
    return before


@locked
def end(rules: Rules, instance: Any, reason: str) -> InstanceState:
    """Begins to end a node for `reason`, in EC2's words; does nothing if it is ending already."""
    before: InstanceState = copy.copy(instance._state)
    if before.name not in ("shutting-down", "terminated"):
        _set(instance, "shutting-down", rules.slow.ending)
        instance.state_reason = StateReason(reason, reason.split(":")[0])
        if not rules.slow.ending:
            finish(rules, instance)
    return before


def finish(rules: Rules, instance: Any) -> None:
    """Ends a node, with the volumes and network interfaces that are deleted on termination."""
    reason, interfaces = instance.state_reason, instance.network_interfaces
    for device, mapping in list(instance.block_device_mapping.items()):
        volume = instance.ec2_backend.volumes.get(mapping.volume_id)
        if volume is not None and len(attachments(volume)) > 1:  # deleted with the last node that has it
            instance.ec2_backend.detach_volume(mapping.volume_id, instance.id, device)
    _terminate_at_once(instance)
    instance.state_reason = reason
    for interface in interfaces:
        if interface.delete_on_termination and interface.id in instance.ec2_backend.enis:
            interface.delete()
