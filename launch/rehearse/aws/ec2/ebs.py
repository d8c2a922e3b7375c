"""Volumes and snapshots where moto differs from EC2, and the EBS direct APIs, as strict as AWS.

https://docs.aws.amazon.com/ebs/latest/APIReference/API_Operations.html; moto accepts any block and verifies nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, cast

from moto.core.responses import ActionResult
from moto.ebs.models import EBSSnapshot, ebs_backends
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends

from launch.rehearse.aws.calls import Check, Refusal, SignedCall
from launch.rehearse.aws.ec2.rules import Rules, mark_new, once

BLOCK = 512 * 1024
LARGEST_GIB = 65_536
# What a volume made from an encrypted snapshot reads where nothing was written: not zeros, according to AWS's coldsnap.
UNWRITTEN = b"\xa5"
PAGE = 100  # the least that MaxResults may be


def _invalid(words: str) -> Refusal:
    return Refusal(400, "ValidationException", words)


def check_of(rules: Rules) -> Check:
    """The check of all requests to the EBS direct APIs."""
    of_operation: dict[str, Callable[[SignedCall], Refusal | None]] = {
        "StartSnapshot": lambda signed: _start(rules, signed.call.params),
        "PutSnapshotBlock": lambda signed: _put(signed.call.params, _found(signed)),
        "CompleteSnapshot": lambda signed: _complete(signed.call.params, _found(signed)),
        "ListSnapshotBlocks": lambda signed: _list(signed.call.params, _is_readable(signed)),
        "GetSnapshotBlock": lambda signed: _get(signed.call.params, _found(signed), _is_readable(signed)),
    }

    def check(signed: SignedCall) -> Refusal | None:
        if signed.call.service != "ebs":
            return None
        name = signed.call.params.get("SnapshotId", "")
        if name and (_found(signed) is None or rules.fresh.get(name, 0) > 0):
            rules.fresh[name] = max(0, rules.fresh.get(name, 0) - 1)
            return Refusal(404, "ResourceNotFoundException", f"The snapshot '{name}' does not exist.")
        check_operation = of_operation.get(signed.call.operation)
        return check_operation(signed) if check_operation else None

    return check


def _found(signed: SignedCall) -> EBSSnapshot | None:
    name = signed.call.params.get("SnapshotId")
    if name not in ec2_backends[signed.account][signed.region].snapshots:
        return None
    return ebs_backends[signed.account][signed.region].snapshots.get(name)


def _start(rules: Rules, params: Mapping[str, Any]) -> Refusal | None:
    if not 1 <= params["VolumeSize"] <= LARGEST_GIB:
        return _invalid("The volume size is out of range.")
    if not 10 <= params.get("Timeout", 60) <= 4320:
        return _invalid("Timeout must be between 10 and 4320.")
    known = rules.direct.get(params.get("ClientToken", ""))
    if known and known[0] != _request_text(params):
        return Refusal(409, "ConflictException", "The client token was used with other parameters.")
    return None


def _request_text(params: Mapping[str, Any]) -> str:
    return repr(sorted(params.items(), key=lambda item: item[0]))


def _put(params: Mapping[str, Any], snapshot: EBSSnapshot | None) -> Refusal | None:
    assert snapshot is not None
    if snapshot.status != "pending":
        return _invalid("The snapshot is not in the pending state.")
    data = params["BlockData"]
    if params["DataLength"] != BLOCK or len(data) != BLOCK:
        return _invalid("The only supported size of a block is 524288 bytes.")
    if params["ChecksumAlgorithm"] != "SHA256":
        return _invalid("The only supported algorithm is SHA256.")
    if params["Checksum"] != base64.b64encode(hashlib.sha256(data).digest()).decode():
        return _invalid("The checksum does not match the data.")
    if not 0 <= params["BlockIndex"] < snapshot.volume_size * 2048:
        return _invalid("The block index is outside the volume.")
    return None


def _complete(params: Mapping[str, Any], snapshot: EBSSnapshot | None) -> Refusal | None:
    assert snapshot is not None
    if snapshot.status != "pending":
        return _invalid("The snapshot is not in the pending state.")
    if params["ChangedBlocksCount"] != len(snapshot.blocks):
        return _invalid("ChangedBlocksCount is not the number of blocks that were written.")
    whole = hashlib.sha256()
    for index in sorted(snapshot.blocks):
        whole.update(hashlib.sha256(snapshot.blocks[index].block_data).digest())
    if params.get("Checksum", "") not in ("", base64.b64encode(whole.digest()).decode()):
        return _invalid("The aggregated checksum does not match.")
    return None


def _is_readable(signed: SignedCall) -> bool:
    """https://docs.aws.amazon.com/ebs/latest/userguide/ebsapi-faq.html: only a completed snapshot can be accessed."""
    return (
        str(ec2_backends[signed.account][signed.region].snapshots[signed.call.params["SnapshotId"]].status)
        == "completed"
    )


def _list(params: Mapping[str, Any], is_readable: bool) -> Refusal | None:
    if not is_readable:
        return _invalid("The snapshot is not in the completed state.")
    return None if 100 <= params.get("MaxResults", PAGE) <= 10_000 else _invalid("MaxResults is out of range.")


def _get(params: Mapping[str, Any], snapshot: EBSSnapshot | None, is_readable: bool) -> Refusal | None:
    assert snapshot is not None
    block = snapshot.blocks.get(params["BlockIndex"])
    if not is_readable or block is None or params["BlockToken"] != block.block_token:
        return _invalid("The block token is not one of this snapshot.")
    return None


# ---- replacements of moto's methods


def start_snapshot(rules: Rules, original: Any, response: Any) -> ActionResult:
    """Start a pending snapshot, without the volume that moto creates; a repeated token gets the same answer."""
    params = {name: response._get_param(name) for name in
              ("VolumeSize", "Tags", "Description", "ClientToken", "Encrypted", "KmsKeyArn", "Timeout")}  # fmt: skip
    token = params["ClientToken"] or ""
    given = {name: value for name, value in params.items() if value is not None}
    if token in rules.direct:
        return ActionResult(rules.direct[token][1])
    answer: Any = original(response).result
    name = answer["SnapshotId"]
    ec2, direct = response.ebs_backend.ec2_backend, response.ebs_backend.snapshots[name]
    snapshot = ec2.snapshots[name]
    ec2.delete_volume(snapshot.volume.id)
    snapshot.status, snapshot.encrypted = "pending", bool(params["Encrypted"])
    snapshot.kms_key_id = params["KmsKeyArn"]
    direct.block_size = answer["BlockSize"] = BLOCK
    if rules.slow.unknown:
        rules.fresh[name] = rules.slow.unknown
    rules.direct[token] = (_request_text(given), answer)
    return ActionResult(answer)


def complete_snapshot(rules: Rules, original: Any, backend: Any, snapshot_id: str) -> str:
    """Seal the snapshot; DescribeSnapshots completes it."""
    backend.snapshots[snapshot_id].status = "sealed"
    backend.ec2_backend.snapshots[snapshot_id].answers_left = rules.slow.pending
    return "pending"


def advance(backend: Any) -> None:
    """Advance the snapshots that are being completed or copied, as each DescribeSnapshots does."""
    for snapshot in backend.snapshots.values():
        left = getattr(snapshot, "answers_left", None)
        if left is None:
            continue
        snapshot.answers_left = left - 1
        if snapshot.answers_left < 0:
            snapshot.status, snapshot.answers_left = "completed", None
            direct = ebs_backends[backend.account_id][backend.region_name].snapshots.get(snapshot.id)
            if direct is not None:
                direct.status = "completed"


def list_snapshot_blocks(rules: Rules, original: Any, response: Any) -> ActionResult:
    """List blocks by index, a page at a time."""
    snapshot = response.ebs_backend.snapshots[response._get_param("SnapshotId")]
    most = int(response._get_param("MaxResults") or PAGE)
    begin = int(response._get_param("NextToken") or response._get_param("StartingBlockIndex") or 0)
    requested = [index for index in sorted(snapshot.blocks) if index >= begin]
    rows = [{"BlockIndex": index, "BlockToken": snapshot.blocks[index].block_token} for index in requested[:most]]
    result: dict[str, Any] = {"Blocks": rows, "VolumeSize": snapshot.volume_size, "BlockSize": BLOCK}
    if len(requested) > most:
        result["NextToken"] = str(requested[most])
    return ActionResult(result)


def copy_snapshot(
    rules: Rules, original: Any, backend: Any, source_snapshot_id: str, source_region: str, *more: Any, **named: Any
) -> Any:
    """Copy a snapshot with its blocks; it is pending at first."""
    copied = original(backend, source_snapshot_id, source_region, *more, **named)
    copied.status, copied.answers_left, copied.encrypted = "pending", rules.slow.pending, True
    source = ebs_backends[backend.account_id][source_region].snapshots.get(source_snapshot_id)
    if source is not None:
        direct = EBSSnapshot(backend.account_id, copied)
        direct.blocks, direct.block_size = dict(source.blocks), BLOCK
        ebs_backends[backend.account_id][backend.region_name].snapshots[copied.id] = direct
    return copied


def snapshot_of(account: Any, volume: str) -> EBSSnapshot | None:
    """The snapshot that a volume was made from, if it was written through these APIs."""
    name = account.ec2.volumes[volume].snapshot_id
    return ebs_backends[account.id][account.region].snapshots.get(name)


def write_volume(snapshot: EBSSnapshot, image: Any, *, fills: bool = True) -> None:
    """Write the content of a volume created from an encrypted snapshot.  image: a binary file.

    fills: also write blocks that were never written; otherwise they are holes, which read as zeros.
    """
    image.truncate(snapshot.volume_size * 2**30)
    for index in range(snapshot.volume_size * 2048):
        block = snapshot.blocks.get(index)
        if block or fills:
            image.seek(index * BLOCK)
            image.write(block.block_data if block else UNWRITTEN * BLOCK)


# ---- volumes and snapshots


# Of AWS's Deep Learning Base AMI, as three projects met it in 2026; AWS documents no size.
IMAGE_GIB = 75
IO_LEAST_GIB = 4


def tune(volume: Any, request: Any) -> None:
    """Set the fields of a volume that moto drops from the request."""
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
    advance(backend)
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
    """Store all attachments in a separate field, as moto's has room for only one."""
    volume.all_attachments = attachments
    volume.attachment = attachments[0] if attachments else None
