"""RunInstances, as in EC2 where moto differs."""

from __future__ import annotations

from typing import Any, cast

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.utils import filter_iam_instance_profiles
from moto.iam.exceptions import NotFoundException

from launch.rehearse.aws.ec2 import capacity, consistency, reach, run_rules
from launch.rehearse.aws.ec2.capacity import RESERVATION
from launch.rehearse.aws.ec2.idempotency import once
from launch.rehearse.aws.ec2.rules import Rules
from launch.rehearse.aws.ec2.states import set_state
from launch.rehearse.aws.ec2.volumes import check_root, tune


def call_action(rules: Rules, original: Any, response: Any) -> Any:
    """moto's own answer to any request: replaced only so that it is made under the lock."""
    return original(response)


def run_instances(rules: Rules, original: Any, response: Any) -> Any:
    try:
        return once(rules, response, lambda: _started(rules, original, response))
    except EC2ClientError as error:
        if error.code not in capacity.SERVER_ERRORS:
            raise
        # EC2 counts it among its own errors, which botocore retries.
        _, headers, body = response.serialized(ActionResult(error))
        return 500, headers | {"status": 500}, body


def _started(rules: Rules, original: Any, response: Any) -> ActionResult:
    ask, backend = response._get_param, response.ec2_backend
    run_rules.check(response.params)
    _check_references(ask, backend, response)
    capacity.check(rules, ask, backend)
    result = original(response)
    tags = response._parse_tag_specification().get("network-interface", {})
    for instance in result.result.instances:
        instance._placement.group_name = ask("Placement.GroupName", "")
        set_state(instance, "pending" if rules.slow.pending else "running", rules.slow.pending)
        instance.hidden_for = rules.slow.hidden
        reach.give_addresses(backend, instance, ask("NetworkInterfaces", []))
        for interface, wanted in zip(instance.network_interfaces, ask("NetworkInterfaces", []), strict=False):
            interface.add_tags(tags)
            interface.private_ip_address = rules.address(interface.private_ip_address)
            interface.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": interface.private_ip_address}]
            interface.interface_type = wanted.get("InterfaceType", "interface")
            interface.card = wanted.get("NetworkCardIndex", 0)
        for mapping in ask("BlockDeviceMappings", []):
            volume = backend.get_volume(instance.block_device_mapping[mapping["DeviceName"]].volume_id)
            tune(volume, mapping["Ebs"])
        instance.reserved = ask(RESERVATION)
        consistency.note(rules, instance.id)
        instance.is_complete = True  # moto lists it long before it has its disks
    return cast(ActionResult, result)


def _check_references(ask: Any, backend: Any, response: Any) -> None:
    """Raises for what does not exist.  moto finds some of this out too late, when half of the nodes are made."""
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
