"""What must be asked of AWS, and of this machine, before a build.  Reads only."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.lookup import SET_UP, Lookups, region_or_some
from launch.core.names import TOOLKIT, bucket_of
from launch.image.codebuild import PROJECT
from launch.image.context import pack
from launch.image.engines import PROGRAMS
from launch.image.facts import Facts
from launch.image.options import Builder, BuildOptions, PushOptions
from launch.image.source import Source
from trainer.errors import TrainerError

_BASE = re.compile(
    r"^(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com/(?P<name>[^:@]+):(?P<tag>[^:@]+)$"
)
# Docker's, and OCI's, which docker writes today; and their lists of images for several kinds of machines.
MANIFESTS = ("application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json")
LISTS = ("application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json")
_ECR = re.compile(r"^\d{12}\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?$")

Which = Callable[[str], str | None]


def look_up(aws: Aws, options: PushOptions, source: Source, which: Which, make_aws: Callable[[str], Aws]) -> Facts:
    """All facts.  Raises nothing of AWS's: what failed is among the problems."""
    # Where nothing builds here, CodeBuild does, unless another was asked for.
    builder = find_builder(options, which) or (None if options.builder else "codebuild")
    context = pack(source) if builder == "codebuild" else None
    try:
        region, account = aws.region, str(aws.call("sts", "GetCallerIdentity")["Account"])
    except TrainerError as problem:
        return Facts(builder, region_or_some(aws), context=context, problems=(problem,))
    lookups = Lookups()
    nothing: Mapping[str, Any] = {}
    image = lookups.required(lambda: _image_of(aws, options.repository, source.tag), nothing)
    there = str(image.get("imageDigest", ""))
    alias = "" if lookups.problems else lookups.required(lambda: digest_of(aws, options.repository, source.alias), "")
    base = lookups.optional("the base", lambda: _base_of(source, make_aws), "")
    found = Facts(builder, region, account, there, alias, base=base, marks=tuple(image.get("imageTags", ())))
    if context is not None and (options.again or not there):
        bucket = bucket_of(account, region)
        uploaded = lookups.required(lambda: _is_uploaded(aws, bucket, context.key, account), False)
        lookups.required(lambda: _check_project(aws), None)
        found = replace(found, context=context, uploaded=uploaded)
    return replace(found, problems=tuple(lookups.problems))


def find_builder(options: BuildOptions, which: Which) -> Builder | None:
    """What builds: what was asked for, or the first program that is here; None if it is not."""
    if options.builder is not None:
        return options.builder if options.builder == "codebuild" or which(options.builder) else None
    return next((name for name in PROGRAMS if which(name)), None)


def _is_uploaded(aws: Aws, bucket: str, key: str, account: str) -> bool:
    """Raises AwsError if there is no such bucket.  A list, for HeadObject would want the right to list all of it."""
    try:
        # Of this account, for its name is anybody's to take.
        asked = {"Bucket": bucket, "Prefix": key, "MaxKeys": 1, "ExpectedBucketOwner": account}
        answer = aws.call("s3", "ListObjectsV2", asked)
    except AwsError as error:
        if error.aws_code == "NoSuchBucket":
            raise AwsError(f"there is no bucket {bucket}, where CodeBuild looks; make it ({SET_UP}).") from error
        raise
    return bool(answer.get("KeyCount"))


def _check_project(aws: Aws) -> None:
    """Raises AwsError if CodeBuild does not know how to build."""
    if not aws.call("codebuild", "BatchGetProjects", {"names": [PROJECT]})["projects"]:
        raise AwsError(f"there is no CodeBuild project {PROJECT} in {aws.region}; make it ({SET_UP}).", "NoProject")


def digest_of(aws: Aws, repository: str, tag: str) -> str:
    """The digest of the image with this tag; "" if there is none.  Raises AwsError."""
    return str(_image_of(aws, repository, tag).get("imageDigest", ""))


def _base_of(source: Source, make_aws: Callable[[str], Aws]) -> str:
    """What the base's name stands for in its registry now; "" where that is not ECR, or the name says it already.

    Other accounts' registries, AWS's own among them, let us pull, so BatchGetImage; DescribeImages they need not.
    """
    found = _BASE.match(source.base)
    if not found:
        return ""
    asked = {
        "registryId": found["account"],
        "repositoryName": found["name"],
        "imageIds": [{"imageTag": found["tag"]}],
        "acceptedMediaTypes": [*MANIFESTS, *LISTS],
    }
    images = make_aws(found["region"]).call("ecr", "BatchGetImage", asked)["images"]
    return str(images[0]["imageId"]["imageDigest"]) if images else ""


def _image_of(aws: Aws, repository: str, tag: str) -> Mapping[str, Any]:
    """As ECR describes it; empty if there is none.  Raises AwsError."""
    asked = {"repositoryName": repository, "imageIds": [{"imageTag": tag}]}
    try:
        image: Mapping[str, Any] = aws.call("ecr", "DescribeImages", asked)["imageDetails"][0]
        return image
    except AwsError as error:
        if error.aws_code == "ImageNotFoundException":
            return {}
        if error.aws_code == "RepositoryNotFoundException":
            make = SET_UP if repository == TOOLKIT else f"aws ecr create-repository --repository-name {repository}"
            raise AwsError(
                f"there is no repository {repository} in {aws.region}; make it ({make}), or give another with "
                "--repository.",
                error.aws_code,
            ) from error
        raise


def region_of(host: str) -> str | None:
    """The region of an ECR registry; None for any other, which needs no login of AWS's."""
    found = _ECR.match(host)
    return found["region"] if found else None
