"""What each call to AWS needs of IAM: its actions, on which resources, with which values of condition keys.

By AWS's Service Authorization Reference (https://docs.aws.amazon.com/service-authorization/latest/reference/), as
remembered on 2026-11-21, where nothing else is named: one call may need several actions, and IAM's names are not
always the operations'.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.launch.faults import Request
from tests.launch.privilege.policies import Need, listed

Tags = Mapping[str, str]
Asked = Mapping[str, Any]


@dataclass(frozen=True)
class World:
    """What IAM knows beside the call.  tags_of: those of an EC2 resource by id or a training job by name; roles_of:
    the ARNs of the roles in an instance profile; owner_of: the account of an AMI, or its alias.
    """

    account: str
    region: str
    tags_of: Callable[[str], Tags]
    roles_of: Callable[[str], list[str]]
    owner_of: Callable[[str], str] = lambda _image: "amazon"

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"


# Operations of one action with another name, on no resource in particular.
NAMES = {"service-quotas": "servicequotas"}
S3 = {"HeadBucket": "ListBucket", "HeadObject": "GetObject", "ListObjectsV2": "ListBucket",
      "ListObjectVersions": "ListBucketVersions", "CreateMultipartUpload": "PutObject", "UploadPart": "PutObject",
      "CompleteMultipartUpload": "PutObject", "CopyObject": "PutObject", "DeleteObjects": "DeleteObject"}  # fmt: skip

# EC2's operations on what is there: the parameter that names it, and what it is.
CHANGES = {
    "AttachVolume": {"VolumeId": "volume", "InstanceId": "instance"},
    "AuthorizeSecurityGroupEgress": {"GroupId": "security-group"},
    "AuthorizeSecurityGroupIngress": {"GroupId": "security-group"},
    "DeleteNetworkInterface": {"NetworkInterfaceId": "network-interface"},
    "DeletePlacementGroup": {"GroupName": "placement-group"},
    "DeleteSecurityGroup": {"GroupId": "security-group"},
    "DeleteVolume": {"VolumeId": "volume"},
    "ModifyInstanceAttribute": {"InstanceId": "instance"},
    "RevokeSecurityGroupEgress": {"GroupId": "security-group"},
    "TerminateInstances": {"InstanceIds": "instance"},
}
# Those that make something: what, and what they need beside it.
MAKES = {
    "CreatePlacementGroup": ("placement-group", {}),
    "CreateSecurityGroup": ("security-group", {"VpcId": "vpc"}),
    "CreateVolume": ("volume", {"SnapshotId": "snapshot"}),
}


def needs(call: Request, world: World) -> list[Need]:
    """All of them; AWS refuses a call if one is not granted."""
    of_service = {"ec2": _ec2, "s3": _s3, "sagemaker": _sagemaker, "scheduler": _scheduler}.get(call.service, _others)
    return list(of_service(call, world)) or [Need(_action(call))]


def _action(call: Request) -> str:
    name = S3.get(call.operation, call.operation) if call.service == "s3" else call.operation
    return f"{NAMES.get(call.service, call.service)}:{name}"


def _ec2(call: Request, world: World) -> Iterator[Need]:
    operation, asked = call.operation, call.params
    action = f"ec2:{operation}"
    if operation in CHANGES:
        for key, kind in CHANGES[operation].items():
            yield from (_existing(action, kind, name, world) for name in listed(asked[key]))
    if operation in MAKES:
        kind, beside = MAKES[operation]
        yield from _made(operation, kind, asked, world, asked.get("GroupName", "new"))
        yield from (_existing(action, what, asked[key], world) for key, what in beside.items() if key in asked)
    if operation == "CreateTags":
        new = _requested({tag["Key"]: tag["Value"] for tag in asked["Tags"]})
        for name in asked["Resources"]:
            there = _existing(action, "*", name, world)
            yield Need(there.action, world.arn("ec2", f"instance/{name}"), {**there.context, **new})
    if operation == "RunInstances":
        yield from _run_instances(asked, world)


def _run_instances(asked: Asked, world: World) -> Iterator[Need]:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ExamplePolicies_EC2.html#iam-example-runinstances"""
    for kind in ("instance", "volume", "network-interface"):
        yield from _made("RunInstances", kind, asked, world)
    interfaces = asked.get("NetworkInterfaces", [asked])
    disks = [mapping.get("Ebs", {}) for mapping in asked.get("BlockDeviceMappings", ())]
    reserved = asked.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    used = {
        "image": [asked["ImageId"]],
        "subnet": [one["SubnetId"] for one in interfaces if "SubnetId" in one],
        "security-group": [group for one in interfaces for group in one.get("Groups", ())],
        "snapshot": [disk["SnapshotId"] for disk in disks if "SnapshotId" in disk],
        "placement-group": [asked["Placement"]["GroupName"]] if "GroupName" in asked.get("Placement", {}) else [],
        "capacity-reservation": list(reserved.values()),
    }
    for kind, names in used.items():
        yield from (_existing("ec2:RunInstances", kind, name, world) for name in dict.fromkeys(names))
    if "IamInstanceProfile" in asked:
        yield from (_pass_role(arn, "ec2") for arn in world.roles_of(asked["IamInstanceProfile"]["Name"]))


def _existing(action: str, kind: str, name: str, world: World) -> Need:
    owner = "" if kind in ("image", "snapshot") else world.account
    known = {f"aws:ResourceTag/{key}": value for key, value in world.tags_of(name).items()}
    if kind == "image":
        known["ec2:Owner"] = world.owner_of(name)
    return Need(action, f"arn:aws:ec2:{world.region}:{owner}:{kind}/{name}", known)


def _made(operation: str, kind: str, asked: Asked, world: World, name: str = "new") -> Iterator[Need]:
    """To make something, and to tag it on the way."""
    specs = [spec for spec in asked.get("TagSpecifications", ()) if spec["ResourceType"] == kind]
    tags = _requested({tag["Key"]: tag["Value"] for spec in specs for tag in spec["Tags"]})
    arn = world.arn("ec2", f"{kind}/{name}")
    yield Need(f"ec2:{operation}", arn, tags)
    if tags:
        yield Need("ec2:CreateTags", arn, {**tags, "ec2:CreateAction": operation})


def _requested(tags: Tags) -> dict[str, str]:
    return {f"aws:RequestTag/{key}": value for key, value in tags.items()}


def _pass_role(arn: str, service: str) -> Need:
    return Need("iam:PassRole", arn, {"iam:PassedToService": f"{service}.amazonaws.com"})


def _s3(call: Request, world: World) -> Iterator[Need]:
    operation, asked = call.operation, call.params
    action, arn = f"s3:{S3.get(operation, operation)}", f"arn:aws:s3:::{asked.get('Bucket', '*')}"
    mine = {"s3:ResourceAccount": world.account, "aws:PrincipalAccount": world.account}
    if "Key" in asked:
        yield Need(action, f"{arn}/{asked['Key']}", mine)
    else:
        yield Need(action, arn, {**mine, **({"s3:prefix": asked["Prefix"]} if "Prefix" in asked else {})})


def _sagemaker(call: Request, world: World) -> Iterator[Need]:
    operation, asked = call.operation, call.params
    action = f"sagemaker:{operation}"
    if operation == "ListTags":
        yield Need(action, asked["ResourceArn"])
    elif "TrainingJobName" in asked:
        name = asked["TrainingJobName"]
        arn = world.arn("sagemaker", f"training-job/{name}")
        if operation != "CreateTrainingJob":
            yield Need(action, arn, {f"aws:ResourceTag/{key}": value for key, value in world.tags_of(name).items()})
            return
        tags = _requested({tag["Key"]: tag["Value"] for tag in asked.get("Tags", ())})
        yield Need(action, arn, tags)
        yield _pass_role(asked["RoleArn"], "sagemaker")
        if tags:
            yield Need("sagemaker:AddTags", arn, {**tags, "sagemaker:TaggingAction": operation})


def _scheduler(call: Request, world: World) -> Iterator[Need]:
    operation, asked = call.operation, call.params
    action = f"scheduler:{operation}"
    if operation == "CreateScheduleGroup":
        arn = world.arn("scheduler", f"schedule-group/{asked['Name']}")
        yield Need(action, arn)
        if "Tags" in asked:
            yield Need("scheduler:TagResource", arn)
    elif "Name" in asked:
        yield Need(action, world.arn("scheduler", f"schedule/{asked.get('GroupName', 'default')}/{asked['Name']}"))
        if "Target" in asked:
            yield _pass_role(asked["Target"]["RoleArn"], "scheduler")


def _others(call: Request, world: World) -> Iterator[Need]:
    """Of these services each call is one action, on one thing or some of a kind."""
    if str(call) == "ssm:GetParameter":  # AWS's own are nobody's
        owner = "" if call.params["Name"].startswith("/aws/") else world.account
        yield Need(_action(call), f"arn:aws:ssm:{world.region}:{owner}:parameter{call.params['Name']}")
    if str(call) == "ecr:BatchGetImage":  # also of AWS's own registry
        owner = call.params.get("registryId", world.account)
        yield Need(_action(call), f"arn:aws:ecr:{world.region}:{owner}:repository/{call.params['repositoryName']}")
    if call.service == "codebuild":  # a build is its project's
        asked = call.params
        names = asked.get("names") or asked.get("ids") or [asked.get("projectName") or asked["id"]]
        yield from (Need(_action(call), world.arn("codebuild", f"project/{name.partition(':')[0]}")) for name in names)
    for arn in ON_ONE.get(str(call), ()):
        yield Need(_action(call), arn.format(**call.params, region=world.region, account=world.account))


_GROUP = "arn:aws:logs:{region}:{account}:log-group:{logGroupName}"
# IAM knows a log group with and without the asterisk at its end.
_GROUPS, _STREAM = (_GROUP, _GROUP + ":*"), (_GROUP + ":log-stream:{logStreamName}",)
ON_ONE = {
    "cloudformation:DescribeStacks": ("arn:aws:cloudformation:{region}:{account}:stack/{StackName}/0",),
    "ecr:DescribeImages": ("arn:aws:ecr:{region}:{account}:repository/{repositoryName}",),
    "ecr:PutImage": ("arn:aws:ecr:{region}:{account}:repository/{repositoryName}",),
    "iam:GetInstanceProfile": ("arn:aws:iam::{account}:instance-profile/{InstanceProfileName}",),
    "iam:GetRole": ("arn:aws:iam::{account}:role/{RoleName}",),
    "logs:CreateLogGroup": _GROUPS,
    "logs:CreateLogStream": _STREAM,
    "logs:FilterLogEvents": _GROUPS,
    "logs:PutLogEvents": _STREAM,
    "logs:PutRetentionPolicy": _GROUPS,
    "secretsmanager:GetSecretValue": ("arn:aws:secretsmanager:{region}:{account}:secret:{SecretId}-Ab1Cd2",),
}
