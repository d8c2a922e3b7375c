"""The container of a training job, which SageMaker looks for, and pulls, in the job's role.

https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html, CreateTrainingJob's permissions; the messages are
as users quote them: https://github.com/aws/amazon-sagemaker-examples/issues/2534
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from moto.ecr.models import ecr_backends
from moto.iam.models import iam_backends

from launch.rehearse.aws.iam.policies import Need, allows
from launch.rehearse.aws.sagemaker.refusals import invalid

PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
URI = re.compile(
    r"(?P<owner>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.[a-z.]+/(?P<name>[^:@]+)(:(?P<tag>[^@]+))?(@(?P<digest>.+))?"
)


def check_image(request: dict[str, Any], account: str) -> None:
    """Raises ValidationException for an image of the account that is not there, or that the role may not pull."""
    place = URI.fullmatch(request["AlgorithmSpecification"].get("TrainingImage", ""))
    if place is None:
        return  # SageMaker wants a VPC and credentials for other registries
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


def batch_get_image(
    rules: Any, original: Any, ecr: Any, name: str, registry: str | None = None, images: Any = None
) -> Any:
    """AWS's own registries have whatever is asked for: moto knows none but the account's."""
    if registry in (None, ecr.account_id):
        return original(ecr, name, registry, images)
    rows = []
    for image in images:
        digest = hashlib.sha256(f"{registry}/{name}:{image.get('imageTag')}".encode()).hexdigest()
        named = {"imageDigest": image.get("imageDigest", f"sha256:{digest}")} | image
        rows.append({"registryId": registry, "repositoryName": name, "imageId": named, "imageManifest": "{}"})
    return {"images": rows, "failures": []}


def _has(repository: Any, place: re.Match[str]) -> bool:
    for image in repository.images:
        if place["digest"] in (None, image.get_image_digest()) and (
            place["digest"] or (place["tag"] or "latest") in image.image_tags
        ):
            return True
    return False


def _may_pull(arn: str, account: str, place: re.Match[str]) -> bool:
    """By the role's policies in IAM; a role of another account, or one made without any policy, is not judged."""
    roles = [role for role in iam_backends[account]["aws"].roles.values() if role.arn == arn]
    policies = [json.loads(text) for role in roles for text in role.policies.values()]
    if not policies:
        return True
    resource = f"arn:aws:ecr:{place['region']}:{place['owner']}:repository/{place['name']}"
    context = {"aws:ResourceAccount": place["owner"], "aws:PrincipalAccount": account}
    return all(allows(policies, Need(action, resource, context)) for action in PULL)
