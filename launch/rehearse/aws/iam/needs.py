"""What each call to AWS needs of IAM: its actions, on which resources, with which values of condition keys.

By AWS's Service Authorization Reference (https://docs.aws.amazon.com/service-authorization/latest/reference/), as
remembered on 2026-11-21, where nothing else is named: one call may need several actions, and IAM's names are not
always the operations'.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launch.rehearse.aws.calls import Call
from launch.rehearse.aws.iam.policies import Need, listed

Tags = Mapping[str, str]
Params = Mapping[str, Any]


@dataclass(frozen=True)
class AccountView:
    """The account as IAM sees it."""

    account: str
    region: str
    tags_of: Callable[[str], Tags]  # of an EC2 resource by its ID, or of a training job by its name
    roles_of: Callable[[str], list[str]]  # ARNs of the roles in an instance profile
    owner_of: Callable[[str], str] = lambda _image: "amazon"  # the account that owns an AMI, or its alias

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"


# ---- EC2


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
        kind, used = MAKES[operation]
        more = _encryption(params) if operation == "CreateVolume" else {}
        yield from _made(operation, kind, params, view, params.get("GroupName", NEW), more)
        yield from (existing(action, what, params[key], view) for key, what in used.items() if key in params)
    more_of = {"CopySnapshot": _copied, "CreateTags": _tagged, "RunInstances": _run_instances}
    if operation in more_of:
        yield from more_of[operation](params, view)


def _copied(params: Params, view: AccountView) -> Iterator[Need]:
    """The source of a copied snapshot, which IAM checks besides the copy: of this account, without its tags.

    Of the snapshot's keys, EC2's table has the owner and no aws:ResourceTag for this action; the copy's tags do not
    count for the source.
    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
    https://docs.aws.amazon.com/ebs/latest/userguide/security_iam_id-based-policy-examples.html#iam-copy-snapshot
    """
    region, name = params.get("SourceRegion", view.region), params["SourceSnapshotId"]
    owner = {"ec2:Owner": view.account, "aws:PrincipalAccount": view.account}
    yield Need("ec2:CopySnapshot", f"arn:aws:ec2:{region}::snapshot/{name}", owner)


def _tagged(params: Params, view: AccountView) -> Iterator[Need]:
    new = requested({tag["Key"]: tag["Value"] for tag in params["Tags"]})
    for name in params["Resources"]:
        there = existing("ec2:CreateTags", "*", name, view)
        yield Need(there.action, view.arn("ec2", f"instance/{name}"), {**there.context, **new})


def _run_instances(params: Params, view: AccountView) -> Iterator[Need]:
    """The permissions for the resources that RunInstances creates and uses.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ExamplePolicies_EC2.html#iam-example-runinstances
    """
    yield from _made("RunInstances", "instance", params, view, more=_metadata(params.get("MetadataOptions", {})))
    yield from _parts(params, view)
    for kind, names in _used_by(params).items():
        yield from (existing("ec2:RunInstances", kind, name, view) for name in dict.fromkeys(names))
    if "IamInstanceProfile" in params:
        yield from (pass_role(arn, "ec2") for arn in view.roles_of(params["IamInstanceProfile"]["Name"]))


def _parts(params: Params, view: AccountView) -> Iterator[Need]:
    """The permissions for the disks and interfaces of new instances."""
    disks = [mapping["Ebs"] for mapping in params.get("BlockDeviceMappings", ()) if "Ebs" in mapping]
    for disk in disks or [{}]:  # without any the image's own
        yield from _made("RunInstances", "volume", params, view, more=_encryption(disk))
    for _ in params.get("NetworkInterfaces", ()) or [{}]:
        yield from _made("RunInstances", "network-interface", params, view)


def _metadata(asked: Params) -> dict[str, str]:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ExamplePolicies_EC2.html#iam-example-instance-metadata"""
    keys = {"HttpTokens": "ec2:MetadataHttpTokens", "HttpPutResponseHopLimit": "ec2:MetadataHttpPutResponseHopLimit"}
    return {key: str(asked[name]) for name, key in keys.items() if name in asked}


def _encryption(disk: Params) -> dict[str, str]:
    return {"ec2:Encrypted": str(bool(disk.get("Encrypted"))).lower()}


def _used_by(params: Params) -> dict[str, list[str]]:
    """{type: IDs} of the resources that new instances use."""
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
    """The permission to create a resource with its tags.  more: condition keys of that resource."""
    specs = [spec for spec in params.get("TagSpecifications", ()) if spec["ResourceType"] == kind]
    tags = requested({tag["Key"]: tag["Value"] for spec in specs for tag in spec["Tags"]})
    arn = view.arn("ec2", f"{kind}/{name}") if kind != "snapshot" else new_snapshot(view)
    yield Need(f"ec2:{operation}", arn, {**tags, **(more or {})})
    if tags:
        yield Need("ec2:CreateTags", arn, {**tags, "ec2:CreateAction": operation})


def new_snapshot(view: AccountView) -> str:
    """The ARN of a new snapshot, which contains no account."""
    return f"arn:aws:ec2:{view.region}::snapshot/{NEW}"


def requested(tags: Tags) -> dict[str, str]:
    return {f"aws:RequestTag/{key}": value for key, value in tags.items()}


def pass_role(arn: str, service: str) -> Need:
    return Need("iam:PassRole", arn, {"iam:PassedToService": f"{service}.amazonaws.com"})


# ---- other services


# Operations of one action with another name, on no resource in particular.
NAMES = {"service-quotas": "servicequotas"}
S3 = {"HeadBucket": "ListBucket", "HeadObject": "GetObject", "ListObjectsV2": "ListBucket",
      "ListObjectVersions": "ListBucketVersions", "CreateMultipartUpload": "PutObject", "UploadPart": "PutObject",
      "CompleteMultipartUpload": "PutObject", "CopyObject": "PutObject", "DeleteObjects": "DeleteObject",
      "ListMultipartUploads": "ListBucketMultipartUploads",
      "GetBucketEncryption": "GetEncryptionConfiguration"}  # fmt: skip


def needs(call: Call, view: AccountView) -> list[Need]:
    """All permissions that a call needs; AWS refuses it if one is not granted."""
    known = {"ec2": of_ec2, "s3": _s3, "sagemaker": _sagemaker, "scheduler": _scheduler, "ebs": _ebs, "batch": _batch}
    return list(known.get(call.service, _others)(call, view)) or [Need(_action(call))]


def _action(call: Call) -> str:
    name = S3.get(call.operation, call.operation) if call.service == "s3" else call.operation
    if call.service == "budgets":
        name = "ViewBudget" if name.startswith("Describe") else "ModifyBudget"
    return f"{NAMES.get(call.service, call.service)}:{name}"


def _s3(call: Call, view: AccountView) -> Iterator[Need]:
    operation, params = call.operation, call.params
    action, arn = f"s3:{S3.get(operation, operation)}", f"arn:aws:s3:::{params.get('Bucket', '*')}"
    mine = {"s3:ResourceAccount": view.account, "aws:PrincipalAccount": view.account}
    if "Key" in params:
        once = {"s3:if-none-match": params["IfNoneMatch"]} if "IfNoneMatch" in params else {}
        yield Need(action, f"{arn}/{params['Key']}", {**mine, **once})
        if "CopySource" in params:
            yield Need("s3:GetObject", f"arn:aws:s3:::{_source(params['CopySource'])}", mine)
    else:
        yield Need(action, arn, {**mine, **({"s3:prefix": params["Prefix"]} if "Prefix" in params else {})})


def _source(source: Any) -> str:
    """Bucket and key of the object to copy, in boto3's form or as sent."""
    return f"{source['Bucket']}/{source['Key']}" if isinstance(source, Mapping) else str(source).lstrip("/")


def _sagemaker(call: Call, view: AccountView) -> Iterator[Need]:
    operation, params = call.operation, call.params
    action = f"sagemaker:{operation}"
    if operation == "ListTags":
        yield Need(action, params["ResourceArn"])
    elif "ModelPackageGroupName" in params:
        known = _approval(params)
        yield Need(action, view.arn("sagemaker", f"model-package-group/{params['ModelPackageGroupName']}"), known)
    elif "TrainingJobName" in params:
        name = params["TrainingJobName"]
        arn = view.arn("sagemaker", f"training-job/{name}")
        if operation != "CreateTrainingJob":
            yield Need(action, arn, {f"aws:ResourceTag/{key}": value for key, value in view.tags_of(name).items()})
            return
        tags = requested({tag["Key"]: tag["Value"] for tag in params.get("Tags", ())})
        yield Need(action, arn, {**tags, **_vpc(params.get("VpcConfig", {}))})
        yield pass_role(params["RoleArn"], "sagemaker")
        if tags:
            yield Need("sagemaker:AddTags", arn, {**tags, "sagemaker:TaggingAction": operation})


def _approval(asked: Params) -> dict[str, str]:
    """https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsagemakerai.html"""
    known = {"sagemaker:ModelApprovalStatus": asked.get("ModelApprovalStatus")}
    known |= {f"sagemaker:ModelLifeCycle:{key}": value for key, value in asked.get("ModelLifeCycle", {}).items()}
    return {key: str(value) for key, value in known.items() if value}


def _vpc(asked: Params) -> dict[str, str | list[str]]:
    keys = {"Subnets": "sagemaker:VpcSubnets", "SecurityGroupIds": "sagemaker:VpcSecurityGroupIds"}
    return {key: asked[name] for name, key in keys.items() if asked.get(name)}


def _scheduler(call: Call, view: AccountView) -> Iterator[Need]:
    operation, params = call.operation, call.params
    action = f"scheduler:{operation}"
    if operation in ("CreateScheduleGroup", "GetScheduleGroup"):
        arn = view.arn("scheduler", f"schedule-group/{params['Name']}")
        yield Need(action, arn)
        if "Tags" in params:
            yield Need("scheduler:TagResource", arn)
    elif "Name" in params:
        yield Need(action, view.arn("scheduler", f"schedule/{params.get('GroupName', 'default')}/{params['Name']}"))
        if "Target" in params:
            yield pass_role(params["Target"]["RoleArn"], "scheduler")


def _batch(call: Call, view: AccountView) -> Iterator[Need]:
    """https://docs.aws.amazon.com/service-authorization/latest/reference/list_batch.html"""
    operation, params = call.operation, call.params
    if operation == "GetJobQueueSnapshot":
        yield Need(_action(call), _queue_arn(params["jobQueue"], view))
    elif operation == "DescribeConsumableResource":
        yield Need(_action(call), _batch_arn("consumable-resource", params["consumableResource"], view))
    elif operation.startswith("Terminate"):
        name, kind = params["jobId"].rpartition("/")[2], {"TerminateJob": "job"}.get(operation, "service-job")
        known = {f"aws:ResourceTag/{key}": value for key, value in view.tags_of(name).items()}
        yield Need(_action(call), view.arn("batch", f"{kind}/{name}"), known)
    elif operation == "SubmitJob":
        yield from _submit(call, view)
    elif operation == "SubmitServiceJob":
        yield from _submit_service_job(call, view)


def _submit_service_job(call: Call, view: AccountView) -> Iterator[Need]:
    params = call.params
    job, keys = view.arn("batch", f"service-job/{NEW}"), requested(params.get("tags", {}))
    if "schedulingPriority" in params:
        keys["batch:SchedulingPriority"] = str(params["schedulingPriority"])
    yield Need(_action(call), _queue_arn(params["jobQueue"], view), keys)
    share = {"batch:ShareIdentifier": params["shareIdentifier"]} if "shareIdentifier" in params else {}
    yield Need(_action(call), job, {**keys, **share})
    if params.get("tags"):
        yield Need("batch:TagResource", job, requested(params["tags"]))
    yield pass_role(json.loads(params["serviceRequestPayload"])["RoleArn"], "sagemaker")


def _submit(call: Call, view: AccountView) -> Iterator[Need]:
    """The job's queue and its definition; without a revision that has none in its ARN.

    https://docs.aws.amazon.com/batch/latest/userguide/iam-example-restrict-job-submission-by-tags.html
    """
    params, keys = call.params, requested(call.params.get("tags", {}))
    share = {"batch:ShareIdentifier": params["shareIdentifier"]} if "shareIdentifier" in params else {}
    yield Need(_action(call), _queue_arn(params["jobQueue"], view), {**keys, **share})
    yield Need(_action(call), _batch_arn("job-definition", params["jobDefinition"], view), {**keys, **share})
    if keys:
        yield Need("batch:TagResource", view.arn("batch", f"job/{NEW}"), keys)


def _queue_arn(queue: str, view: AccountView) -> str:
    return _batch_arn("job-queue", queue, view)


def _batch_arn(kind: str, name: str, view: AccountView) -> str:
    return name if name.startswith("arn:") else view.arn("batch", f"{kind}/{name}")


def _ebs(call: Call, view: AccountView) -> Iterator[Need]:
    """https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonelasticblockstore.html"""
    if call.operation == "StartSnapshot":
        tags = requested({tag["Key"]: tag["Value"] for tag in call.params.get("Tags", ())})
        yield Need(_action(call), new_snapshot(view), tags)
        if tags:
            yield Need("ec2:CreateTags", new_snapshot(view), {**tags, "ec2:CreateAction": call.operation})
        return
    yield existing(_action(call), "snapshot", call.params["SnapshotId"], view)


def _others(call: Call, view: AccountView) -> Iterator[Need]:
    """Other services, where each call is one action on one or several resources of a type."""
    if str(call) == "ssm:GetParameter":  # AWS's public parameters have no account
        owner = "" if call.params["Name"].startswith("/aws/") else view.account
        yield Need(_action(call), f"arn:aws:ssm:{view.region}:{owner}:parameter{call.params['Name']}")
    if str(call) == "ecr:BatchGetImage":  # AWS's own registries, too
        owner = call.params.get("registryId", view.account)
        yield Need(_action(call), f"arn:aws:ecr:{view.region}:{owner}:repository/{call.params['repositoryName']}")
    if call.service == "codebuild":  # builds are authorized by their project
        params = call.params
        names = params.get("names") or params.get("ids") or [params.get("projectName") or params["id"]]
        for name in names:
            yield Need(_action(call), view.arn("codebuild", f"project/{name.partition(':')[0]}"), _overridden(params))
    for arn in ON_ONE.get(str(call), ()):
        yield Need(_action(call), arn.format(**call.params, region=view.region, account=view.account))


def _overridden(params: Params) -> dict[str, str]:
    """The condition keys for settings of its project that a build overrides, as far as launchers do so.

    https://docs.aws.amazon.com/codebuild/latest/userguide/action-context-keys.html
    """
    return {"codebuild:source.location": params["sourceLocationOverride"]} if "sourceLocationOverride" in params else {}


_GROUP = "arn:aws:logs:{region}:{account}:log-group:{logGroupName}"
# IAM knows a log group with and without the asterisk at its end.
_GROUPS, _STREAM = (_GROUP, _GROUP + ":*"), (_GROUP + ":log-stream:{logStreamName}",)
ON_ONE = {
    "cloudformation:DescribeStacks": ("arn:aws:cloudformation:{region}:{account}:stack/{StackName}/0",),
    "ecr:DescribeImages": ("arn:aws:ecr:{region}:{account}:repository/{repositoryName}",),
    "ecr:PutImage": ("arn:aws:ecr:{region}:{account}:repository/{repositoryName}",),
    "ecr:GetDownloadUrlForLayer": ("arn:aws:ecr:{region}:{account}:repository/{repositoryName}",),
    "iam:GetInstanceProfile": ("arn:aws:iam::{account}:instance-profile/{InstanceProfileName}",),
    "iam:GetRole": ("arn:aws:iam::{account}:role/{RoleName}",),
    "iam:SimulatePrincipalPolicy": ("{PolicySourceArn}",),
    "logs:CreateLogGroup": _GROUPS,
    "logs:CreateLogStream": _STREAM,
    "logs:FilterLogEvents": _GROUPS,
    "logs:PutLogEvents": _STREAM,
    "logs:PutRetentionPolicy": _GROUPS,
    "ssm:DescribeDocument": ("arn:aws:ssm:{region}:{account}:document/{Name}",),
    "secretsmanager:GetSecretValue": ("arn:aws:secretsmanager:{region}:{account}:secret:{SecretId}-Ab1Cd2",),
}
