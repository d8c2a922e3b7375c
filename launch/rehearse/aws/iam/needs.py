"""What each call to AWS needs of IAM: its actions, on which resources, with which values of condition keys.

By AWS's Service Authorization Reference (https://docs.aws.amazon.com/service-authorization/latest/reference/), as
remembered on 2026-11-21, where nothing else is named: one call may need several actions, and IAM's names are not
always the operations'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launch.rehearse.aws.call import Call
from launch.rehearse.aws.iam.account import AccountView, Params
from launch.rehearse.aws.iam.ec2_needs import existing, new_snapshot, of_ec2, pass_role, requested
from launch.rehearse.aws.iam.policies import Need

# Operations of one action with another name, on no resource in particular.
NAMES = {"service-quotas": "servicequotas"}
S3 = {"HeadBucket": "ListBucket", "HeadObject": "GetObject", "ListObjectsV2": "ListBucket",
      "ListObjectVersions": "ListBucketVersions", "CreateMultipartUpload": "PutObject", "UploadPart": "PutObject",
      "CompleteMultipartUpload": "PutObject", "CopyObject": "PutObject", "DeleteObjects": "DeleteObject",
      "ListMultipartUploads": "ListBucketMultipartUploads",
      "GetBucketEncryption": "GetEncryptionConfiguration"}  # fmt: skip


def needs(call: Call, view: AccountView) -> list[Need]:
    """All needs of a call; AWS refuses it if one is not granted."""
    of_service = {"ec2": of_ec2, "s3": _s3, "sagemaker": _sagemaker, "scheduler": _scheduler, "ebs": _ebs}.get(
        call.service, _others
    )
    return list(of_service(call, view)) or [Need(_action(call))]


def _action(call: Call) -> str:
    name = S3.get(call.operation, call.operation) if call.service == "s3" else call.operation
    name = "ViewBudget" if name == "DescribeBudgets" else name
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
    """Bucket and key of what is copied, as boto3 takes them and as they are sent."""
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


def _ebs(call: Call, view: AccountView) -> Iterator[Need]:
    """https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonelasticblockstore.html"""
    if call.operation == "StartSnapshot":
        tags = requested({tag["Key"]: tag["Value"] for tag in call.params.get("Tags", ())})
        parent = call.params.get("ParentSnapshotId")
        begun = {"ebs:ParentSnapshot": f"arn:aws:ec2:{view.region}::snapshot/{parent}"} if parent else {}
        yield Need(_action(call), new_snapshot(view), {**tags, **begun})
        if tags:
            yield Need("ec2:CreateTags", new_snapshot(view), {**tags, "ec2:CreateAction": call.operation})
        return
    yield existing(_action(call), "snapshot", call.params["SnapshotId"], view)


def _others(call: Call, view: AccountView) -> Iterator[Need]:
    """Other services, where each call is one action, on one resource or several of a type."""
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
    """What a build takes from elsewhere than its project says.

    https://docs.aws.amazon.com/codebuild/latest/userguide/action-context-keys.html
    """
    keys = {
        "source.location": params.get("sourceLocationOverride"),
        "source.auth.type": params.get("sourceAuthOverride", {}).get("type"),
        "secondarySources": "true" if "secondarySourcesOverride" in params else None,
        "environment.fleet.fleetArn": params.get("fleetOverride", {}).get("fleetArn"),
    }
    return {f"codebuild:{key}": value for key, value in keys.items() if value is not None}


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
