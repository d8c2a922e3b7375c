"""What moto lacks or has wrong of what a launch uses, mended in moto's own classes: its server has it too.

Everything that can be set, such as capacity and quotas, is on Rules; account.py hands it to the tests.
"""

import base64
import copy
import functools
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import method_names_from_class
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.models.elastic_network_interfaces import Attachment
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceState, StateReason
from moto.ec2.responses import EC2Response
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ec2.utils import filter_iam_instance_profiles
from moto.iam.exceptions import NotFoundException
from moto.kms.utils import generate_private_key
from moto.scheduler.models import EventBridgeSchedulerBackend
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend

from launch.rehearse.mending import changed

USER_DATA_LIMIT = 16_384
NO_CAPACITY = "InsufficientInstanceCapacity"
_terminate_at_once = Instance.terminate  # moto's own
USER_ASKED = "Client.UserInitiatedShutdown: User initiated shutdown"

# Service Quotas' codes for vCPUs: the beginnings of the types' names, and whether they are spot.
# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
STANDARD = ("a", "c", "d", "h", "i", "m", "r", "t", "z")
QUOTAS = {
    "L-DB2E81BA": (("g", "vt"), False),
    "L-417A185B": (("p",), False),
    "L-1216C47A": (STANDARD, False),
    "L-3819A6DF": (("g", "vt"), True),
    "L-7212CCBC": (("p2", "p3", "p4"), True),
    "L-C4BD4855": (("p5",), True),
    "L-34B43A08": (STANDARD, True),
}


@dataclass
class Slow:
    """In how many answers of DescribeInstances a node is not there yet, is pending, and is shutting down."""

    hidden: int = 0
    pending: int = 1
    ending: int = 1


@dataclass
class Rules:
    """What AWS has and allows.  capacity: machines by zone, type or (type, zone); quota: vCPUs by code; address: the
    address that a node has in place of moto's.
    """

    capacity: dict[str | tuple[str, str], int] = field(default_factory=dict)
    quota: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUOTAS, 768.0))
    spot_usd: dict[str, float] = field(default_factory=dict)  # by zone
    slow: Slow = field(default_factory=Slow)
    address: Callable[[str], str] = lambda moto: moto
    placement_groups: dict[str, SimpleNamespace] = field(default_factory=dict)
    reservations: dict[str, SimpleNamespace] = field(default_factory=dict)
    answered: dict[tuple[str, str, str], tuple[str, Any]] = field(default_factory=dict)  # by client token


@contextmanager
def mended(rules: Rules) -> Iterator[None]:
    """Meanwhile moto is as AWS would be under `rules`."""
    changes: list[tuple[type, str, Any]] = [
        (EC2Response, "run_instances", _run_instances),
        (EC2Response, "create_volume", _create_volume),
        (EC2Response, "describe_instances", _describe_instances),
        (EC2Response, "describe_spot_price_history", _describe_spot_price_history),
        (EC2Response, "delete_network_interface", _delete_network_interface),
        (EC2Response, "create_placement_group", _create_placement_group),
        (EC2Response, "describe_placement_groups", _describe_placement_groups),
        (EC2Response, "delete_placement_group", _delete_placement_group),
        (EC2Response, "describe_capacity_reservations", _describe_capacity_reservations),
        (EC2Backend, "describe_snapshots", _describe_snapshots),
        (EC2Backend, "delete_security_group", _delete_security_group),
        (EC2Backend, "attach_volume", _attach_volume),
        (EC2Backend, "detach_volume", _detach_volume),
        (Instance, "terminate", _terminate),
        (Attachment, "__init__", _attachment),
        (ServiceQuotasBackend, "get_service_quota", _get_service_quota),
        (EventBridgeSchedulerBackend, "create_schedule_group", _create_schedule_group),
        (EventBridgeSchedulerBackend, "create_schedule", _in_a_group("group_name")),
        (EventBridgeSchedulerBackend, "list_schedules", _in_a_group(0)),
    ]
    with ExitStack() as stack:
        for owner, name, new in changes:
            stack.enter_context(changed(owner, name, new, rules))
        stack.enter_context(mock.patch.object(Instance, "network_interfaces", property(_interfaces_of)))
        stack.enter_context(mock.patch.object(Volume, "attachments", property(_attachments)))
        stack.enter_context(mock.patch.object(Instance, "cpu_options", property(_cpu_options), create=True))
        # Or every answer to RunInstances says pending, also one that is repeated much later.
        states = stack.enter_context(mock.patch.dict(EC2BaseResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER))
        del states["RunInstances.Reservation.Instances.Instance.State"]
        # moto looks through all methods of a service for each request, and makes an RSA key for each account.
        methods = functools.cache(method_names_from_class)
        stack.enter_context(mock.patch("moto.core.responses.method_names_from_class", methods))
        stack.enter_context(mock.patch("moto.kms.models.generate_private_key", _kms_key))
        yield


_kms_key = functools.cache(generate_private_key)


# ---- nodes


def _run_instances(rules: Rules, original: Any, response: Any) -> Any:
    try:
        return _once(rules, response, lambda: _started(rules, original, response))
    except EC2ClientError as error:
        if error.code != NO_CAPACITY:
            raise
        # EC2 counts it among its own errors, which botocore would try again and again.
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
        for interface, asked in zip(instance.network_interfaces, ask("NetworkInterfaces", []), strict=False):
            interface.add_tags(tags)
            interface.private_ip_address = rules.address(interface.private_ip_address)
            interface.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": interface.private_ip_address}]
            interface.interface_type = asked.get("InterfaceType", "interface")
            interface.card = asked.get("NetworkCardIndex", 0)
        for mapping in ask("BlockDeviceMappings", []):
            volume = backend.get_volume(instance.block_device_mapping[mapping["DeviceName"]].volume_id)
            _tune(volume, mapping["Ebs"])
        instance.is_whole = True  # moto lists it long before it has its disks
    return cast(ActionResult, result)


def _tune(volume: Any, asked: Any) -> None:
    """The fields of a volume that moto drops."""
    if volume.volume_type == "gp3":
        volume.iops, volume.throughput = asked.get("Iops") or 3000, asked.get("Throughput") or 125
    volume.volume_initialization_rate = asked.get("VolumeInitializationRate")


def _check_references(ask: Any, backend: Any, response: Any) -> None:
    """moto finds some of these out too late, when half of the nodes are there."""
    if len(base64.b64decode(ask("UserData") or "")) > USER_DATA_LIMIT:
        raise EC2ClientError("InvalidParameterValue", "User data is limited to 16384 bytes")
    disks = [mapping["Ebs"] for mapping in ask("BlockDeviceMappings", [])]
    backend.describe_snapshots([disk["SnapshotId"] for disk in disks if disk.get("SnapshotId")])
    for interface in ask("NetworkInterfaces", []):
        for group in interface.get("Groups") or []:
            if backend.get_security_group_from_id(group) is None:
                raise EC2ClientError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")
    if name := ask("IamInstanceProfile.Name"):
        try:
            filter_iam_instance_profiles(response.current_account, response.partition, None, name)
        except NotFoundException as error:
            raise EC2ClientError(
                "InvalidParameterValue",
                f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
            ) from error


def _check_room(rules: Rules, ask: Any, backend: Any) -> None:
    """Placement group, zone, quota, reservation and capacity, in this order."""
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
        _take(rules, reservation, kind, zone, count)
        return
    _check_capacity(rules, backend, kind, zone, count)


def _check_capacity(rules: Rules, backend: Any, kind: str, zone: str, count: int) -> None:
    there = [
        {node.instance_type, node.placement.zone} for node in backend.all_instances() if node.state != "terminated"
    ]
    for key, limit in rules.capacity.items():
        of = {key} if isinstance(key, str) else set(key)
        if of <= {kind, zone} and sum(of <= node for node in there) + count > limit:
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


def _cpu_options(instance: Any) -> dict[str, int]:
    cpu = INSTANCE_TYPES[instance.instance_type]["VCpuInfo"]
    return {"CoreCount": cpu["DefaultCores"], "ThreadsPerCore": cpu["DefaultThreadsPerCore"]}


def _interfaces_of(instance: Any) -> list[Any]:
    """moto knows one per device index, although every network card has its own first."""
    return [interface for interface in instance.ec2_backend.enis.values() if interface.instance is instance]


def _attachment(rules: Rules, original: Any, attachment: Any, interface: Any) -> None:
    original(attachment, interface)
    attachment.network_card_index = getattr(interface, "card", 0)


def _describe_instances(rules: Rules, original: Any, response: Any) -> ActionResult:
    hidden = {node.id for node in response.ec2_backend.all_instances() if not _shows(rules, node)}
    for name in response._get_param("InstanceIds", []):
        if name in hidden:
            raise EC2ClientError("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist")
    result = original(response)
    shown = []
    for reservation in result.result["Reservations"]:
        seen = copy.copy(reservation)
        seen.instances = [node for node in reservation.instances if node.id not in hidden]
        shown += [seen] if seen.instances else []
    result.result["Reservations"] = shown
    return cast(ActionResult, result)


def _shows(rules: Rules, instance: Any) -> bool:
    """Whether a node is in this answer; with every answer it gets on with its life."""
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


def _terminate(rules: Rules, original: Any, instance: Any) -> InstanceState:
    return end(rules, instance, USER_ASKED)


def end(rules: Rules, instance: Any, reason: str) -> InstanceState:
    """Begins to end a node for `reason`, as EC2 words it; one that ends already stays as it is."""
    before: InstanceState = copy.copy(instance._state)
    if before.name not in ("shutting-down", "terminated"):
        _set(instance, "shutting-down", rules.slow.ending)
        instance.state_reason = StateReason(reason, reason.split(":")[0])
        if not rules.slow.ending:
            finish(rules, instance)
    return before


def finish(rules: Rules, instance: Any) -> None:
    """Ends a node; volumes and network interfaces go with it where they were told to."""
    reason, interfaces = instance.state_reason, instance.network_interfaces
    for device, mapping in list(instance.block_device_mapping.items()):
        volume = instance.ec2_backend.volumes.get(mapping.volume_id)
        if volume is not None and len(_attachments(volume)) > 1:  # it goes with the last node that has it
            instance.ec2_backend.detach_volume(mapping.volume_id, instance.id, device)
    _terminate_at_once(instance)
    instance.state_reason = reason
    for interface in interfaces:
        if interface.delete_on_termination and interface.id in instance.ec2_backend.enis:
            interface.delete()


# ---- what stands around them


def _create_placement_group(rules: Rules, original: Any, response: Any) -> ActionResult:
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
    return ActionResult({"PlacementGroup": vars(group)})


def _describe_placement_groups(rules: Rules, original: Any, response: Any) -> ActionResult:
    wanted, filters = response._get_param("GroupNames", []), response._filters_from_querystring()
    for name in wanted:
        _known_group(rules, name)
    found = [
        group
        for group in rules.placement_groups.values()
        if group.region == response.region
        and (not wanted or group.group_name in wanted)
        and all(_matches(group, name, values) for name, values in filters.items())
    ]
    return ActionResult({"PlacementGroups": [vars(group) for group in found]})


def _matches(group: Any, name: str, values: Any) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in group.tags}
    if name == "tag-key":
        return any(value in tags for value in values)
    if name.startswith("tag:"):
        return tags.get(name.removeprefix("tag:")) in values
    return getattr(group, name.replace("-", "_")) in values


def _delete_placement_group(rules: Rules, original: Any, response: Any) -> EmptyResult:
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


def _delete_network_interface(rules: Rules, original: Any, response: Any) -> Any:
    interface = response.ec2_backend.enis.get(response._get_param("NetworkInterfaceId"))
    if interface is not None and interface.instance is not None:
        raise EC2ClientError("InvalidParameterValue", f"Network interface '{interface.id}' is currently in use.")
    return original(response)


def _delete_security_group(
    rules: Rules, original: Any, backend: Any, name: str | None = None, group_id: str | None = None
) -> None:
    group = backend.get_security_group_from_id(group_id) if group_id else None
    if group is not None:
        others = [g for groups in backend.groups.values() for g in groups.values() if g.id != group.id]
        rules_of_others = [rule for other in others for rule in [*other.ingress_rules, *other.egress_rules]]
        is_named = any(rule.source_group.get("GroupId") == group.id for rule in rules_of_others)
        if is_named or any(group in interface._group_set for interface in backend.enis.values()):
            raise EC2ClientError("DependencyViolation", f"resource {group.id} has a dependent object")
    original(backend, name, group_id)


def _describe_capacity_reservations(rules: Rules, original: Any, response: Any) -> ActionResult:
    wanted = response._get_param("CapacityReservationIds", [])
    for name in wanted:
        if name not in rules.reservations:
            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{name}' does not exist"
            )
    found = [r for name, r in rules.reservations.items() if not wanted or name in wanted]
    return ActionResult({"CapacityReservations": [vars(reservation) for reservation in found]})


def _take(rules: Rules, name: str, kind: str, zone: str, count: int) -> None:
    found = rules.reservations.get(name)
    if found is None:
        raise EC2ClientError(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{name}' does not exist"
        )
    if (found.instance_type, found.availability_zone) != (kind, zone) or found.available_instance_count < count:
        raise EC2ClientError(
            "ReservationCapacityExceeded", "The requested reservation does not have sufficient compatible capacity."
        )
    found.available_instance_count -= count


def _describe_spot_price_history(rules: Rules, original: Any, response: Any) -> ActionResult:
    result = original(response)
    for row in result.result["SpotPriceHistory"]:
        row["SpotPrice"] = f"{rules.spot_usd.get(row['AvailabilityZone'], 0.00001):.6f}"
    return cast(ActionResult, result)


# ---- volumes


def _describe_snapshots(
    rules: Rules, original: Any, backend: Any, snapshot_ids: list[str] | None = None, filters: Any = None
) -> list[Any]:
    for name in snapshot_ids or ():
        if name not in backend.snapshots:
            raise EC2ClientError("InvalidSnapshot.NotFound", f"The snapshot '{name}' does not exist.")
    return list(original(backend, snapshot_ids, filters))


def _create_volume(rules: Rules, original: Any, response: Any) -> ActionResult:
    def create() -> ActionResult:
        result = original(response)
        _tune(result.result, response.params)
        return cast(ActionResult, result)

    return _once(rules, response, create)


def _attach_volume(
    rules: Rules, original: Any, backend: Any, volume_id: str, instance_id: str, device_path: str, ends: bool = False
) -> Any:
    volume, instance = backend.get_volume(volume_id), backend.get_instance(instance_id)
    others = [a for a in _attachments(volume) if a.instance is not instance]
    if len(others) < len(_attachments(volume)) or (others and not volume.multi_attach_enabled):
        raise EC2ClientError("VolumeInUse", f"{volume_id} is already attached to an instance")
    if volume.availability_zone != instance.placement.zone:
        raise EC2ClientError(
            "InvalidVolume.ZoneMismatch", f"The volume '{volume_id}' is not in the same availability zone."
        )
    # Not while RunInstances attaches what it was asked to: moto has those running from their first moment.
    if instance.state != "running":
        raise EC2ClientError("IncorrectState", f"Instance '{instance_id}' is not 'running'.")
    made = original(backend, volume_id, instance_id, device_path, ends)
    _set_attachments(volume, [*others, made])
    return made


def _detach_volume(
    rules: Rules, original: Any, backend: Any, volume_id: str, instance_id: str, device_path: str
) -> Any:
    volume = backend.get_volume(volume_id)
    mine = [a for a in _attachments(volume) if a.instance.id == instance_id]
    others = [a for a in _attachments(volume) if a.instance.id != instance_id]
    volume.attachment = mine[0] if mine else None
    gone = original(backend, volume_id, instance_id, device_path)
    _set_attachments(volume, others)
    return gone


def _attachments(volume: Any) -> list[Any]:
    return list(getattr(volume, "all_attachments", ()))


def _set_attachments(volume: Any, attachments: list[Any]) -> None:
    """moto itself knows of one at most."""
    volume.all_attachments = attachments
    volume.attachment = attachments[0] if attachments else None


# ---- whatever is not EC2


def _get_service_quota(rules: Rules, original: Any, backend: Any, service_code: str, quota_code: str) -> dict[str, Any]:
    if service_code != "ec2":
        return dict(original(backend, service_code, quota_code))
    if quota_code not in rules.quota:
        raise NoSuchResource
    return {"ServiceCode": "ec2", "QuotaCode": quota_code, "Value": rules.quota[quota_code]}


class _Conflict(JsonRESTError):
    code = 409


class _NotFound(JsonRESTError):
    code = 404


def _create_schedule_group(rules: Rules, original: Any, backend: Any, name: str, tags: Any) -> Any:
    """moto would put an empty group in the place of one with schedules in it."""
    if name in backend.schedule_groups:
        raise _Conflict("ConflictException", f"Schedule group {name} already exists.")
    return original(backend, name, tags)


def _in_a_group(place: str | int) -> Callable[..., Any]:
    """The method, for a group that must be there."""

    def method(rules: Rules, original: Any, backend: Any, *args: Any, **named: Any) -> Any:
        given = args[place] if isinstance(place, int) else named.get(place)
        for name in [given] if isinstance(given, str) else given or []:
            if name not in backend.schedule_groups:
                raise _NotFound("ResourceNotFoundException", f"Schedule group {name} does not exist.")
        return original(backend, *args, **named)

    return method


# ---- idempotency


def _once(rules: Rules, response: Any, act: Callable[[], ActionResult]) -> ActionResult:
    """The answer to the first request with this client token, with what has become of it since."""
    token = response._get_param("ClientToken") or ""
    key, asked = (response.region, response._get_action(), token), json.dumps(response.params, default=str)
    if token and key in rules.answered:
        before, made = rules.answered[key]
        if before != asked:
            raise EC2ClientError(
                "IdempotentParameterMismatch", "The request uses the same client token as a previous, but different one"
            )
        return ActionResult(made)
    result = act()
    if token:
        rules.answered[key] = (asked, result.result)
    return result
