"""Volumes and snapshots, as in EC2 where moto differs."""

from __future__ import annotations

from typing import Any, cast

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError

from launch.rehearse.aws.ec2 import ebs
from launch.rehearse.aws.ec2.rules import Rules, mark_new, once

# Of AWS's Deep Learning Base AMI, as three projects met it in 2026; AWS documents no size.
IMAGE_GIB = 75
IO_LEAST_GIB = 4


def tune(volume: Any, request: Any) -> None:
    """Sets the fields of a volume that moto drops from the request."""
    if volume.volume_type == "gp3":
        volume.iops, volume.throughput = request.get("Iops") or 3000, request.get("Throughput") or 125
    volume.volume_initialization_rate = request.get("VolumeInitializationRate")


def disks_of_image(image: Any) -> list[dict[str, Any]]:
    """The root volume of an AMI."""
    disk = {"SnapshotId": image.ebs_snapshot.id, "VolumeSize": IMAGE_GIB, "DeleteOnTermination": True,
            "VolumeType": "gp3"}  # fmt: skip
    return [{"DeviceName": image.root_device_name, "Ebs": disk}]


def check_root(image: Any, mappings: Any) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html: InvalidBlockDeviceMapping."""
    for mapping in mappings:
        size = mapping.get("Ebs", {}).get("VolumeSize")
        if mapping["DeviceName"] == image.root_device_name and size and int(size) < IMAGE_GIB:
            raise EC2ClientError(
                "InvalidBlockDeviceMapping",
                f"Volume of size {size}GB is smaller than snapshot '{image.ebs_snapshot.id}', expect size >= "
                f"{IMAGE_GIB}GB",
            )


def describe_snapshots(
    rules: Rules, original: Any, backend: Any, snapshot_ids: list[str] | None = None, filters: Any = None
) -> list[Any]:
    for name in snapshot_ids or ():
        if name not in backend.snapshots:
            raise EC2ClientError("InvalidSnapshot.NotFound", f"The snapshot '{name}' does not exist.")
    ebs.advance(backend)
    return list(original(backend, snapshot_ids, filters))


def create_volume(rules: Rules, original: Any, response: Any) -> ActionResult:
    def create() -> ActionResult:
        _check_size(response.ec2_backend, response.params)
        result = original(response)
        tune(result.result, response.params)
        mark_new(rules, result.result.id)
        return cast(ActionResult, result)

    return once(rules, response, create)


def _check_size(backend: Any, params: Any) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html: Size."""
    snapshot = backend.snapshots.get(params.get("SnapshotId"))
    size = int(params.get("Size") or (snapshot.volume_size if snapshot else IO_LEAST_GIB))
    if params.get("VolumeType") in ("io1", "io2") and size < IO_LEAST_GIB:
        raise EC2ClientError(
            "InvalidParameterValue", f"Volume of {size}GiB is too small; minimum is {IO_LEAST_GIB}GiB."
        )


def attach_volume(
    rules: Rules, original: Any, backend: Any, volume_id: str, instance_id: str, device_path: str, ends: bool = False
) -> Any:
    volume, instance = backend.get_volume(volume_id), backend.get_instance(instance_id)
    others = [a for a in attachments(volume) if a.instance is not instance]
    if len(others) < len(attachments(volume)) or (others and not volume.multi_attach_enabled):
        raise EC2ClientError("VolumeInUse", f"{volume_id} is already attached to an instance")
    if volume.availability_zone != instance.placement.zone:
        raise EC2ClientError(
            "InvalidVolume.ZoneMismatch", f"The volume '{volume_id}' is not in the same availability zone."
        )
    # Never in RunInstances, which attaches its own volumes: moto's instances run from the first moment.
    if instance.state != "running":
        raise EC2ClientError("IncorrectState", f"Instance '{instance_id}' is not 'running'.")
    attachment = original(backend, volume_id, instance_id, device_path, ends)
    _set_attachments(volume, [*others, attachment])
    return attachment


def detach_volume(rules: Rules, original: Any, backend: Any, volume_id: str, instance_id: str, device_path: str) -> Any:
    volume = backend.get_volume(volume_id)
    mine = [a for a in attachments(volume) if a.instance.id == instance_id]
    others = [a for a in attachments(volume) if a.instance.id != instance_id]
    volume.attachment = mine[0] if mine else None
    detached = original(backend, volume_id, instance_id, device_path)
    _set_attachments(volume, others)
    return detached


def attachments(volume: Any) -> list[Any]:
    return list(getattr(volume, "all_attachments", ()))


def _set_attachments(volume: Any, attachments: list[Any]) -> None:
    """Keeps all of them in a field of our own: moto's has room for one."""
    volume.all_attachments = attachments
    volume.attachment = attachments[0] if attachments else None
