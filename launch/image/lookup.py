"""Look-ups in AWS and on this machine before a build.  Reads only."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.aws.client import Aws
from launch.aws.containers import COMPRESSED_GB, is_of_aws
from launch.aws.lookup import PLACE, SET_UP, Lookups, image_at, region_or_some
from launch.aws.names import TOOLKIT, bucket_of
from launch.aws.refusals import BUILDS
from launch.aws.regions import absent_types
from launch.core.errors import AwsError
from launch.image.codebuild import PROJECT
from launch.image.engines import PROGRAMS
from launch.image.options import Builder, BuildOptions, PushOptions
from launch.image.source import Context, Source, pack
from trainer.errors import TrainerError

# In the tag that records an image's base: trainer-CONTENT-on-DIGEST.
BUILT_ON = "-on-"


def short(digest: str) -> str:
    """The part of a digest that such a tag holds."""
    return digest.removeprefix("sha256:")[:12]


@dataclass(frozen=True)
class Transfers:
    """What a build moves, and how long that takes."""

    base_gb: float  # pulled, unless this machine has it
    push_gb: float
    here_min: float  # the upload from this machine
    codebuild_min: float  # the whole build

    @property
    def is_far(self) -> bool:
        """Whether the upload from here takes longer than CodeBuild."""
        return self.here_min > self.codebuild_min


# What the trainer adds to AWS's image (infra/container.md), and CodeBuild's time, estimated: it unpacks 20 GB, and
# compresses them again for the first push.
LAYER_GB = 0.023
FIRST_MIN, LATER_MIN = 20.0, 10.0


def transfers_of(source: Source, mbit_s: float, *, has_base: bool) -> Transfers | None:
    """What building on a base of AWS's moves; None for another, whose size is unknown.

    has_base: whether the repository has its layers, of which ECR takes none from AWS's registry.
    """
    if not is_of_aws(source.base):
        return None
    push_gb = LAYER_GB if has_base else COMPRESSED_GB + LAYER_GB
    return Transfers(COMPRESSED_GB, push_gb, push_gb * 8000 / mbit_s / 60, LATER_MIN if has_base else FIRST_MIN)


@dataclass(frozen=True)
class Facts:
    """The facts of a build.  Digests and account are "" if missing or if their look-up failed."""

    builder: Builder | None  # None if the requested one is not installed
    region: str = ""
    account: str = ""
    image: str = ""  # digest of the image with this content
    tags: tuple[str, ...] = ()  # of that image
    alias: str = ""  # digest under the moving tag
    context: Context | None = None  # where CodeBuild builds
    is_uploaded: bool = False  # whether the bucket has the context
    base: str = ""  # digest of the base's tag now
    installed: Builder | None = None  # the first program on this machine that could build
    transfers: Transfers | None = None  # None for a base of unknown size
    builds: float | None = None  # that CodeBuild runs at a time for the account; None if unknown
    problems: tuple[TrainerError, ...] = ()

    @property
    def base_moved(self) -> bool:
        """Whether the image was built on another base of this name; False if its base was not recorded."""
        records = [tag for tag in self.tags if BUILT_ON in tag]
        return bool(self.base and records) and not any(tag.endswith(short(self.base)) for tag in records)


_ECR = re.compile(r"^\d{12}\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?$")

# The name of a program -> its path, None if it is not installed.
Which = Callable[[str], str | None]


def look_up(aws: Aws, options: PushOptions, source: Source, which: Which, make_aws: Callable[[str], Aws]) -> Facts:
    """Look up all facts; AWS's failures become problems."""
    installed = find_builder(options, which)
    try:
        region, account = aws.region, str(aws.call("sts", "GetCallerIdentity")["Account"])
    except TrainerError as problem:
        builder = _choose(options, installed)
        return Facts(
            builder, region_or_some(aws), context=_context(builder, source), installed=installed, problems=(problem,)
        )
    lookups = Lookups()
    nothing: Mapping[str, Any] = {}
    image = lookups.required(lambda: _image_of(aws, options.repository, source.tag), nothing)
    alias, is_uploaded = nothing, False
    if not lookups.problems:
        alias = lookups.required(lambda: _image_of(aws, options.repository, source.alias), nothing)
    base = lookups.optional("the base", lambda: _base_of(source, make_aws), "")
    transfers = transfers_of(source, options.upload_mbit_s, has_base=_is_built_on(alias, base))
    may_build = options.repository == TOOLKIT and has_codebuild(region)
    builder = _choose(options, installed, transfers if may_build else None)
    context, builds = _context(builder, source), None
    if context is not None and has_codebuild(region) and (options.again or not image):
        is_uploaded = lookups.required(lambda: _is_uploaded(aws, context, account), False)
        lookups.required(lambda: _check_project(aws), None)
        if not lookups.problems:
            builds = lookups.optional("the quota of builds", lambda: _quota_of_builds(aws), None)
    return Facts(
        builder=builder,
        region=region,
        account=account,
        image=str(image.get("imageDigest", "")),
        tags=tuple(image.get("imageTags", ())),
        alias=str(alias.get("imageDigest", "")),
        context=context,
        is_uploaded=is_uploaded,
        base=base,
        installed=installed,
        transfers=transfers,
        builds=builds,
        problems=tuple(lookups.problems),
    )


def _context(builder: Builder | None, source: Source) -> Context | None:
    return pack(source) if builder == "codebuild" else None


def _is_built_on(image: Mapping[str, Any], base: str) -> bool:
    """Whether an image's tags record this digest of a base."""
    return bool(base) and any(tag.endswith(BUILT_ON + short(base)) for tag in image.get("imageTags", ()))


def _choose(options: BuildOptions, installed: Builder | None, transfers: Transfers | None = None) -> Builder | None:
    """The requested builder, or CodeBuild if none is installed or, given what both move, it takes less time."""
    is_far = transfers is not None and transfers.is_far
    return "codebuild" if options.builder is None and (installed is None or is_far) else installed


def has_codebuild(region: str) -> bool:
    return "AWS::CodeBuild::Project" not in absent_types(region)


def find_builder(options: BuildOptions, which: Which) -> Builder | None:
    """The requested builder, or the first that is installed; None if it is not."""
    if options.builder == "codebuild":
        return options.builder
    candidates = PROGRAMS if options.builder is None else (options.builder,)
    return next((name for name in candidates if which(name)), None)


def _is_uploaded(aws: Aws, context: Context, account: str) -> bool:
    """Whether the bucket has the context.  Raises AwsError if there is no such bucket.

    Lists objects, because HeadObject needs permission to list the whole bucket; checks the owner, because another
    account could own a bucket of that name.
    """
    bucket = bucket_of(account, aws.region)
    query = {"Bucket": bucket, "Prefix": context.key, "MaxKeys": 1, "ExpectedBucketOwner": account}
    try:
        answer = aws.call("s3", "ListObjectsV2", query)
    except AwsError as error:
        if error.aws_code == "NoSuchBucket":
            raise AwsError(
                f"there is no bucket {bucket}, which CodeBuild reads; create it ({SET_UP} --region {aws.region})."
            ) from error
        raise
    # Another key may begin with this one.
    return any(row["Key"] == context.key for row in answer.get("Contents", ()))


def _check_project(aws: Aws) -> None:
    """Raises AwsError if there is no CodeBuild project."""
    if not aws.call("codebuild", "BatchGetProjects", {"names": [PROJECT]})["projects"]:
        raise AwsError(f"there is no CodeBuild project {PROJECT} in {aws.region}; create it ({SET_UP}).", "NoProject")


def _quota_of_builds(aws: Aws) -> float | None:
    """How many builds of the project's size may run at a time; a new account may have 0.

    https://docs.aws.amazon.com/codebuild/latest/userguide/limits.html
    """
    quotas = aws.pages("service-quotas", "ListServiceQuotas", "Quotas", {"ServiceCode": "codebuild"})
    return next((float(quota["Value"]) for quota in quotas if quota["QuotaName"] == BUILDS), None)


def digest_of(aws: Aws, repository: str, tag: str) -> str:
    """The digest of the image with this tag; "" if there is none.  Raises AwsError."""
    return str(_image_of(aws, repository, tag).get("imageDigest", ""))


def _base_of(source: Source, make_aws: Callable[[str], Aws]) -> str:
    """The digest of the base's tag now; "" for a base by digest or outside ECR."""
    base = PLACE.fullmatch(source.base)
    if base is None or base["digest"]:
        return ""
    image = image_at(make_aws(base["region"]), base)
    return str(image["imageId"]["imageDigest"]) if image else ""


def _image_of(aws: Aws, repository: str, tag: str) -> Mapping[str, Any]:
    """ECR's description of the image; empty if there is none.  Raises AwsError."""
    query = {"repositoryName": repository, "imageIds": [{"imageTag": tag}]}
    try:
        images: Sequence[Mapping[str, Any]] = aws.call("ecr", "DescribeImages", query)["imageDetails"]
        return images[0] if images else {}
    except AwsError as error:
        if error.aws_code == "ImageNotFoundException":
            return {}
        if error.aws_code == "RepositoryNotFoundException":
            create = SET_UP if repository == TOOLKIT else f"aws ecr create-repository --repository-name {repository}"
            raise AwsError(
                f"there is no repository {repository} in {aws.region}; create it ({create}), or give another with "
                "--repository.",
                error.aws_code,
            ) from error
        raise


def region_of(host: str) -> str | None:
    """The region of an ECR registry; None for any other registry, which needs no AWS login."""
    registry = _ECR.match(host)
    return registry["region"] if registry else None
