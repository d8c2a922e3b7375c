"""The requests that SageMaker refuses, in its own words.  Words marked [?] are not known to be AWS's own."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from moto.ecr.models import ecr_backends
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends
from moto.sagemaker.exceptions import SagemakerClientError

from launch.core import catalog
from launch.rehearse.aws.iam.policies import Need, allows, listed
from launch.rehearse.aws.sagemaker.jobs import DEFAULT_RUN_S, TrainingJob, pool_key
from launch.rehearse.aws.sagemaker.rules import (
    ACROSS_JOBS,
    LONGEST_RUN,
    ON_DEMAND,
    PER_JOB,
    SPOT,
    WARM,
    TrainingPlan,
    plans_of,
)

SERVICE = "sagemaker.amazonaws.com"
LONGEST_RUN_S = 28 * 86_400


def invalid(message: str) -> SagemakerClientError:
    return SagemakerClientError("ValidationException", message)


def check_shape(shape: Any, value: Any, path: str) -> None:
    """Check lengths, ranges, patterns and enumerations, which neither botocore nor moto does."""
    if shape.type_name == "structure":
        for key, member in shape.members.items():
            if key in value:
                check_shape(member, value[key], f"{path}.{key[0].lower()}{key[1:]}".lstrip("."))
        return
    if constraint := _violated(shape, value):
        raise invalid(
            f"1 validation error detected: Value '{value}' at '{path}' failed to satisfy constraint: "
            f"Member must {constraint}"
        )
    if shape.type_name == "list":
        for number, item in enumerate(value, 1):
            check_shape(shape.member, item, f"{path}.{number}.member")
    if shape.type_name == "map":
        for key, item in value.items():
            check_shape(shape.key, key, f"{path}.key")
            check_shape(shape.value, item, f"{path}.{key}.value")


def _violated(shape: Any, value: Any) -> str:
    """The first constraint that the value violates; empty if none."""
    limits = shape.metadata
    if limits.get("enum") and value not in limits["enum"]:
        return f"satisfy enum value set: [{', '.join(limits['enum'])}]"
    if outside := _outside(limits, *_size(shape, value)):
        return outside
    pattern = limits.get("pattern")
    if pattern and isinstance(value, str) and not re.fullmatch(_python(pattern), value, re.DOTALL):
        return f"satisfy regular expression pattern: {pattern}"
    return ""


def _size(shape: Any, value: Any) -> tuple[float, str]:
    """The number that is limited, and what it is."""
    if shape.type_name in ("integer", "long", "float", "double"):
        return value, "value"
    return (len(value) if hasattr(value, "__len__") else 0), "length"


def _outside(limits: Any, size: float, name: str) -> str:
    if limits.get("max") is not None and size > limits["max"]:
        return f"have {name} less than or equal to {limits['max']}"
    if limits.get("min") is not None and size < limits["min"]:
        return f"have {name} greater than or equal to {limits['min']}"
    return ""


def _python(pattern: str) -> str:
    """A regular expression of Java's in Python's syntax."""
    return pattern.replace(r"\p{L}", r"\w").replace(r"\p{N}", r"\d").replace(r"\p{Z}", r"\s")


def check_limits(request: dict[str, Any]) -> None:
    limits, is_spot = request.get("StoppingCondition", {}), request.get("EnableManagedSpotTraining", False)
    run_s, wait_s = limits.get("MaxRuntimeInSeconds", DEFAULT_RUN_S), limits.get("MaxWaitTimeInSeconds")
    if wait_s is not None and not is_spot:
        raise invalid(
            "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
        )
    if is_spot and (wait_s is None or wait_s < run_s):
        raise invalid(
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
        )
    if run_s > LONGEST_RUN_S:
        raise invalid(f"Invalid MaxRuntimeInSeconds. It must not exceed {LONGEST_RUN_S}")  # [?]
    if is_spot and request["ResourceConfig"].get("KeepAlivePeriodInSeconds"):
        raise invalid("KeepAlivePeriodInSeconds is not supported when EnableManagedSpotTraining is set to true")  # [?]
    _check_machines(request["ResourceConfig"], is_spot)


def _check_machines(machines: dict[str, Any], is_spot: bool) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html; the words are ours [?]."""
    if "InstancePreferences" in machines:
        _check_preferences(machines, is_spot)
    elif not {"InstanceType", "InstanceGroups"} & machines.keys():
        raise invalid("ResourceConfig must have InstanceType, InstanceGroups or InstancePreferences")
    if {"SelectedInstanceType", "SelectedInstanceCount"} & machines.keys():
        raise invalid("SelectedInstanceType and SelectedInstanceCount are read-only")
    if "VolumeKmsKeyId" in machines and (local := [kind for kind in _types(machines) if _has_disks(kind)]):
        raise invalid(f"VolumeKmsKeyId is not supported for instances with local storage: {', '.join(local)}")
    if plans_of(machines) and is_spot:
        raise invalid("TrainingPlanArn is not supported when EnableManagedSpotTraining is set to true")


def _types(machines: dict[str, Any]) -> list[str]:
    rows = [machines, *machines.get("InstancePreferences", ())]
    return [row["InstanceType"] for row in rows if "InstanceType" in row]


def _has_disks(kind: str) -> bool:
    known = catalog.load().get(kind.removeprefix(catalog.SAGEMAKER_PREFIX))
    return known is not None and bool(known.nvme_gb)


def _check_preferences(machines: dict[str, Any], is_spot: bool) -> None:
    preferred = [one["InstanceType"] for one in machines["InstancePreferences"]]
    excluded = {"InstanceType", "InstanceGroups", "InstancePlacementConfig"} & machines.keys()
    if is_spot or excluded:
        raise invalid(
            f"InstancePreferences is mutually exclusive with {', '.join(excluded) or 'managed spot training'}"
        )
    if len(set(preferred)) < len(preferred):
        raise invalid("An instance type can appear only once in InstancePreferences")
    _check_counts_and_plans(machines, machines["InstancePreferences"])


def _check_counts_and_plans(machines: dict[str, Any], preferred: list[dict[str, Any]]) -> None:
    counted = [one for one in preferred if "InstanceCount" in one]
    if len(counted) != (0 if "InstanceCount" in machines else len(preferred)):
        raise invalid("InstanceCount must be set once for the job, or for every one of InstancePreferences")
    if "TrainingPlanArn" in machines and any("TrainingPlanArns" in one for one in preferred):
        raise invalid("TrainingPlanArn is mutually exclusive with the TrainingPlanArns of InstancePreferences")


def check_plans(request: Mapping[str, Any], plans: Mapping[str, TrainingPlan]) -> None:
    """Raise ValidationException for an unknown plan, and for one of another type; the words are ours [?]."""
    for kind, arn in plans_of(request["ResourceConfig"]).items():
        if arn not in plans:
            raise invalid(f"Could not find training plan {arn}")
        if plans[arn].instance_type != kind:
            raise invalid(
                f"InstanceType {kind} does not match the InstanceType {plans[arn].instance_type} of training plan {arn}"
            )


def check_role(arn: str, job: str) -> None:
    """Raise ValidationException unless SageMaker may assume the role for the job with this ARN."""
    for role in iam_backends[job.split(":")[4]]["aws"].roles.values():
        if role.arn == arn and _trusts_sagemaker(json.loads(role.assume_role_policy_document), job):
            return
    raise invalid(
        f"Could not assume role {arn}. Please ensure that the role exists and allows principal '{SERVICE}' to assume "
        "the role."
    )


def _trusts_sagemaker(trust: dict[str, Any], job: str) -> bool:
    """Of the sources of a request, AWS's page on training jobs has aws:SourceArn alone.

    https://docs.aws.amazon.com/sagemaker/latest/dg/security-confused-deputy-prevention.html
    """
    statements = list[dict[str, Any]]()
    for statement in listed(trust.get("Statement", [])):
        principal = statement.get("Principal", {})
        if isinstance(principal, dict) and SERVICE in listed(principal.get("Service", [])):
            rest = {element: value for element, value in statement.items() if element != "Principal"}
            statements.append({**rest, "Resource": "*"})
    return allows([{"Statement": statements}], Need("sts:AssumeRole", "*", {"aws:SourceArn": job}))


# ---- quotas: https://docs.aws.amazon.com/general/latest/gr/sagemaker.html; the message is as users quote it


def check_quota(job: TrainingJob) -> None:
    """Raise ResourceLimitExceeded for the first that the job would exceed."""
    _check_general_quotas(job)
    used = _used(job)
    for use in _uses(job):
        for kind in _counted(job):
            name = f"{kind} for {use}"
            _check_room(name, job.rules.quota.get(name, 0), used[name], job.count, "Instances")


def _uses(job: TrainingJob) -> list[str]:
    """The quotas of each type that the job counts against."""
    return [SPOT if job.is_spot else ON_DEMAND, *([WARM] if job.kept_s else [])]


def _counted(job: TrainingJob) -> list[str]:
    """Every type in the list, not only the selected one; capacity of a training plan has quotas of its own."""
    return [kind for kind in job.instance_types if kind not in job.plans]


def _used(job: TrainingJob) -> Counter[str]:
    """What the other jobs use, by the quota's name."""
    used = Counter[str]()
    for other in job.others:
        if not other.has_ended and not other.is_reserved:
            used[f"{other.instance_type} for {SPOT if other.is_spot else ON_DEMAND}"] += other.count
        if other.pool in ("InUse", "Available") and pool_key(other) != pool_key(job):
            used[f"{other.instance_type} for {WARM}"] += other.count
    return used


def _check_general_quotas(job: TrainingJob) -> None:
    """Those of the whole account; an account without a value has no such quota."""
    quota, market = job.rules.quota, "spot " if job.is_spot else ""
    run_s = job.described["StoppingCondition"]["MaxRuntimeInSeconds"]
    across = sum(other.count for other in job.others if not other.has_ended and other.is_spot == job.is_spot)
    for name, used, delta, unit in (
        (LONGEST_RUN, 0, run_s, "Seconds"),  # [?] the unit
        (PER_JOB.format(market), 0, job.count, "Instances"),
        (ACROSS_JOBS.format(market), across, job.count, "Instances"),
    ):
        if name in quota:
            _check_room(name, quota[name], used, delta, unit)


def _check_room(name: str, limit: float, used: int, delta: int, unit: str) -> None:
    if used + delta > limit:
        raise SagemakerClientError(
            "ResourceLimitExceeded",
            f"The account-level service limit '{name}' is {limit:.0f} {unit}, with current utilization of {used} "
            f"{unit} and a request delta of {delta} {unit}. Please use AWS Service Quotas to request an increase for "
            "this quota. If AWS Service Quotas is not available, contact AWS support to request an increase for this "
            "quota.",
        )


# ---- the image, which SageMaker looks for, and pulls, in the job's role
# https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html, CreateTrainingJob's permissions
# The messages are as users quote them: https://github.com/aws/amazon-sagemaker-examples/issues/2534


PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
URI = re.compile(
    r"(?P<owner>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.[a-z.]+/(?P<name>[^:@]+)(:(?P<tag>[^@]+))?(@(?P<digest>.+))?"
)


def check_image(request: dict[str, Any], account: str) -> None:
    """Raise ValidationException for an image of the account that does not exist, or that the role may not pull."""
    place = URI.fullmatch(request["AlgorithmSpecification"].get("TrainingImage", ""))
    if place is None:
        return  # for other registries, SageMaker requires a VPC and credentials
    role = request["RoleArn"]
    where = f"repository: {place['name']} in registry ID: {place['owner']}"
    advice = f"and role {role} has proper pull permissions for SageMaker: {', '.join(PULL)}"
    if place["owner"] == account:
        repository = ecr_backends[account][place["region"]].repositories.get(place["name"])
        if repository is None:
            raise invalid(f"Cannot find {where} Please check if your ECR repository exists {advice}")
        if not _has(repository, place):
            raise invalid(f"Cannot find the requested image: {place[0]}")  # [?] the end
    if not _may_pull(role, account, place):
        raise invalid(f"Access denied for {where}. Please check if your ECR repository and image exist {advice}")


def _has(repository: Any, place: re.Match[str]) -> bool:
    for image in repository.images:
        if place["digest"] in (None, image.get_image_digest()) and (
            place["digest"] or (place["tag"] or "latest") in image.image_tags
        ):
            return True
    return False


def _may_pull(arn: str, account: str, place: re.Match[str]) -> bool:
    """Whether the role's policies allow it to pull; true for a role of another account, or without any policy."""
    roles = [role for role in iam_backends[account]["aws"].roles.values() if role.arn == arn]
    policies = [json.loads(text) for role in roles for text in role.policies.values()]
    if not policies:
        return True
    resource = f"arn:aws:ecr:{place['region']}:{place['owner']}:repository/{place['name']}"
    context = {"aws:ResourceAccount": place["owner"], "aws:PrincipalAccount": account}
    return all(allows(policies, Need(action, resource, context)) for action in PULL)


# ---- input data


def missing_data(request: dict[str, Any], arn: str) -> str:
    """AWS's sentence on the first channel without objects; empty if there is none."""
    region, account = arn.split(":")[3:5]
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"].get("S3DataSource")
        bucket, _, prefix = source["S3Uri"].removeprefix("s3://").partition("/") if source else ("", "", "")
        stored = s3_backends[account]["aws"].buckets.get(bucket)
        if source and not (stored and any(key.startswith(prefix) for key in list(stored.keys))):
            return (
                f'No S3 objects found under S3 URL "{source["S3Uri"]}" given in input data source. Please ensure that '
                f"the bucket exists in the selected region ({region}), that objects exist under that S3 prefix, and "
                f'that the role "{request["RoleArn"]}" has "s3:ListBucket" permissions on bucket "{bucket}".'
            )
    return ""
