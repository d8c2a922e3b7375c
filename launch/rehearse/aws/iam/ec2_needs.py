"""What each call to EC2 needs of IAM, and what other services' calls need likewise: see needs.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from launch.rehearse.aws.call import Call
from launch.rehearse.aws.iam.account import AccountView, Params, Tags
from launch.rehearse.aws.iam.policies import Need, listed

# What has no id yet is a star itself to IAM, which a policy writes as ${*}, and what is there has its id:
# https://docs.aws.amazon.com/ebs/latest/userguide/security_iam_id-based-policy-examples.html, "Copying snapshots"
NEW = "*"

# EC2's operations on existing resources -> {parameter with their ids: their type}.
CHANGES = {
    "AttachVolume": {"VolumeId": "volume", "InstanceId": "instance"},
    "AuthorizeSecurityGroupEgress": {"GroupId": "security-group"},
    "AuthorizeSecurityGroupIngress": {"GroupId": "security-group"},
    "DeleteNetworkInterface": {"NetworkInterfaceId": "network-interface"},
    "DeletePlacementGroup": {"GroupName": "placement-group"},
    "DeleteSecurityGroup": {"GroupId": "security-group"},
    "DeleteSnapshot": {"SnapshotId": "snapshot"},
    "DeleteVolume": {"VolumeId": "volume"},
    "GetConsoleOutput": {"InstanceId": "instance"},
    "ModifyInstanceAttribute": {"InstanceId": "instance"},
    "RevokeSecurityGroupEgress": {"GroupId": "security-group"},
    "TerminateInstances": {"InstanceIds": "instance"},
}
# Its operations that create one -> its type, and the resources that they use.
MAKES = {
    "CopySnapshot": ("snapshot", {}),
    "CreatePlacementGroup": ("placement-group", {}),
    "CreateSecurityGroup": ("security-group", {"VpcId": "vpc"}),
    "CreateVolume": ("volume", {"SnapshotId": "snapshot"}),
}


def of_ec2(call: Call, view: AccountView) -> Iterator[Need]:
    operation, params = call.operation, call.params
    action = f"ec2:{operation}"
    if operation in CHANGES:
        for key, kind in CHANGES[operation].items():
            yield from (existing(action, kind, name, view) for name in listed(params[key]))
    if operation in MAKES:
        kind, beside = MAKES[operation]
        more = _encryption(params) if operation == "CreateVolume" else {}
        yield from _made(operation, kind, params, view, params.get("GroupName", NEW), more)
        yield from (existing(action, what, params[key], view) for key, what in beside.items() if key in params)
    more_of = {"CopySnapshot": _copied, "CreateTags": _tagged, "RunInstances": _run_instances}
    if operation in more_of:
        yield from more_of[operation](params, view)


def _copied(params: Params, view: AccountView) -> Iterator[Need]:
    """What a snapshot is copied from, which IAM asks for beside the copy, and where the copy's tags do not count.

    https://aws.amazon.com/blogs/storage/enhancing-resource-level-permissions-for-copying-amazon-ebs-snapshots/
    """
    region = params.get("SourceRegion", view.region)
    yield existing("ec2:CopySnapshot", "snapshot", params["SourceSnapshotId"], replace(view, region=region))


def _tagged(params: Params, view: AccountView) -> Iterator[Need]:
    new = requested({tag["Key"]: tag["Value"] for tag in params["Tags"]})
    for name in params["Resources"]:
        there = existing("ec2:CreateTags", "*", name, view)
        yield Need(there.action, view.arn("ec2", f"instance/{name}"), {**there.context, **new})


def _run_instances(params: Params, view: AccountView) -> Iterator[Need]:
    """What RunInstances needs for what it makes and for what that uses.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ExamplePolicies_EC2.html#iam-example-runinstances
    """
    known = {**_metadata(params.get("MetadataOptions", {})), **_tenancy(params.get("Placement", {}))}
    yield from _made("RunInstances", "instance", params, view, more=known)
    yield from _parts(params, view)
    for kind, names in _used_by(params).items():
        yield from (existing("ec2:RunInstances", kind, name, view) for name in dict.fromkeys(names))
    if "IamInstanceProfile" in params:
        yield from (pass_role(arn, "ec2") for arn in view.roles_of(params["IamInstanceProfile"]["Name"]))


def _parts(params: Params, view: AccountView) -> Iterator[Need]:
    """Of new instances: their disks, and their interfaces, which may be there already."""
    disks = [mapping["Ebs"] for mapping in params.get("BlockDeviceMappings", ()) if "Ebs" in mapping]
    for disk in disks or [{}]:  # without any the image's own
        yield from _made("RunInstances", "volume", params, view, more=_encryption(disk))
    for card in params.get("NetworkInterfaces", ()) or [{}]:
        name = card.get("NetworkInterfaceId", NEW)  # which AWS gives as a condition key, too
        known = {"ec2:NetworkInterfaceID": name} if name != NEW else {}
        yield from _made("RunInstances", "network-interface", params, view, name, known)


def _metadata(asked: Params) -> dict[str, str]:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ExamplePolicies_EC2.html#iam-example-instance-metadata"""
    keys = {"HttpTokens": "ec2:MetadataHttpTokens", "HttpPutResponseHopLimit": "ec2:MetadataHttpPutResponseHopLimit"}
    return {key: str(asked[name]) for name, key in keys.items() if name in asked}


def _tenancy(placement: Params) -> dict[str, str]:
    """Of Dedicated Hosts IAM learns no more than this: they are no resource of RunInstances.

    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
    """
    return {"ec2:Tenancy": str(placement["Tenancy"])} if "Tenancy" in placement else {}


def _encryption(disk: Params) -> dict[str, str]:
    return {"ec2:Encrypted": str(bool(disk.get("Encrypted"))).lower()}


def _used_by(params: Params) -> dict[str, list[str]]:
    """{type: ids} of what new instances use."""
    interfaces = params.get("NetworkInterfaces", [params])
    disks = [mapping.get("Ebs", {}) for mapping in params.get("BlockDeviceMappings", ())]
    reserved = params.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    placement = params.get("Placement", {})
    return {
        "image": [params["ImageId"]],
        "subnet": [one["SubnetId"] for one in interfaces if "SubnetId" in one],
        "security-group": [group for one in interfaces for group in one.get("Groups", ())],
        "snapshot": [disk["SnapshotId"] for disk in disks if "SnapshotId" in disk],
        "placement-group": [placement["GroupName"]] if "GroupName" in placement else [],
        "capacity-reservation": list(reserved.values()),
    }


def existing(action: str, kind: str, name: str, view: AccountView) -> Need:
    owner = "" if kind in ("image", "snapshot") else view.account
    known = {f"aws:ResourceTag/{key}": value for key, value in view.tags_of(name).items()}
    if kind == "image":
        known["ec2:Owner"] = view.owner_of(name)
    return Need(action, f"arn:aws:ec2:{view.region}:{owner}:{kind}/{name}", known)


def _made(
    operation: str, kind: str, params: Params, view: AccountView, name: str = NEW, more: Tags | None = None
) -> Iterator[Need]:
    """Creating a resource, with its tags.  more: condition keys of that resource."""
    specs = [spec for spec in params.get("TagSpecifications", ()) if spec["ResourceType"] == kind]
    tags = requested({tag["Key"]: tag["Value"] for spec in specs for tag in spec["Tags"]})
    arn = view.arn("ec2", f"{kind}/{name}") if kind != "snapshot" else new_snapshot(view)
    yield Need(f"ec2:{operation}", arn, {**tags, **(more or {})})
    if tags:
        yield Need("ec2:CreateTags", arn, {**tags, "ec2:CreateAction": operation})


def new_snapshot(view: AccountView) -> str:
    """Snapshots have no account in their names."""
    return f"arn:aws:ec2:{view.region}::snapshot/{NEW}"


def requested(tags: Tags) -> dict[str, str]:
    return {f"aws:RequestTag/{key}": value for key, value in tags.items()}


def pass_role(arn: str, service: str) -> Need:
    return Need("iam:PassRole", arn, {"iam:PassedToService": f"{service}.amazonaws.com"})
