"""What keeps the stack from being deleted: jobs, stacks of other regions, attachments and data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from launch.aws.client import Aws
from launch.aws.lookup import Lookups
from launch.aws.names import TOOLKIT
from launch.aws.regions import query_each
from launch.core.backend import all_with, find
from launch.core.errors import AwsError, Forbidden
from launch.infra.lookup import Stack, stack_of, unless_absent
from launch.infra.template import STACK
from trainer.errors import TrainerError, import_function


@dataclass(frozen=True)
class Region:
    """What a region holds that needs the roles of one stack."""

    name: str
    jobs: tuple[str, ...] = ()  # each with the command that stops it
    has_stack: bool = False
    problems: tuple[TrainerError, ...] = ()  # failed look-ups

    @property
    def is_closed(self) -> bool:
        """Whether the organization forbids every look-up that failed: then no job can be started there either."""
        return bool(self.problems) and all(isinstance(problem, Forbidden) for problem in self.problems)


# Functions that list the active jobs of a region, see Backend.active_jobs.
JobListers = Sequence[Callable[[Aws, datetime], tuple[str, ...]]]


def look_up_regions(clients: Sequence[Aws], now: datetime) -> tuple[Region, ...]:
    """Looks up what each region holds, in parallel."""
    listers = [import_function(find(name).active_jobs) for name in all_with(lambda one: bool(one.active_jobs))]
    return query_each(clients, lambda aws: (_look(aws, now, listers),))[0]


def _look(aws: Aws, now: datetime, listers: JobListers) -> Region:
    lookups, no_jobs = Lookups(), tuple[str, ...]()
    jobs = [lookups.required(partial(list_jobs, aws, now), no_jobs) for list_jobs in listers]
    has_stack = lookups.required(lambda: stack_of(aws) is not None, False)
    return Region(aws.region, tuple(chain.from_iterable(jobs)), has_stack, tuple(lookups.problems))


def check_regions(regions: Sequence[Region], here: str) -> tuple[str, ...]:
    """Warnings.  Raises AwsError if a region has jobs, a stack outside `here`, or could not be looked up.  Pure."""
    _check_known(regions)
    _check_no_jobs([job for region in regions for job in region.jobs])
    _check_no_stacks([region.name for region in regions if region.has_stack and region.name != here], here)
    closed = ", ".join(region.name for region in regions if region.is_closed)
    return (
        (f"not checked, because the organization forbids access, so no job can run there: {closed}.",) if closed else ()
    )


def _check_known(regions: Sequence[Region]) -> None:
    for region in regions:
        for problem in region.problems:
            if not isinstance(problem, Forbidden):
                raise AwsError(f"cannot tell whether jobs run in {region.name}: {problem}")


def _check_no_jobs(jobs: Sequence[str]) -> None:
    if jobs:
        more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
        raise AwsError(f"jobs still hold resources: {', '.join(jobs[:3])}{more}; stop them first.", "JobsRun")


def _check_no_stacks(others: Sequence[str], here: str) -> None:
    if others:
        commands = "\n".join(f"  python -m launch.infra down --region {region}" for region in others)
        raise AwsError(
            f"stacks in other regions use the roles in this stack {STACK}; delete those first, and this one ({here}) "
            f"last:\n{commands}",
            "NeededElsewhere",
        )


# ---- attachments to the stack's policies and roles that were made outside the stack
#
# CloudFormation cannot delete those then ("Cannot delete a policy attached to entities") and stops halfway:
# https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeletePolicy.html

# Earlier versions of the stack attached these themselves; CloudFormation detaches what it attached.
ATTACHED_BEFORE = {"arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"}


def check_nothing_attached(aws: Aws, stack: Stack) -> None:
    """Raises AwsError with the commands that detach what others attached."""
    commands = list[str]()
    for arn in stack.physical_ids("AWS::IAM::ManagedPolicy"):
        commands += _detach_from_users(aws, arn)
    for role in stack.physical_ids("AWS::IAM::Role"):
        commands += _detach_from_role(aws, role)
    if commands:
        raise AwsError(
            "the stack's policies are attached elsewhere, or its roles have additional policies, so AWS could not "
            "delete them. Check who needs these attachments, then remove them:\n"
            + "\n".join(f"  {command}" for command in commands),
            "Attached",
        )


def _detach_from_users(aws: Aws, arn: str) -> list[str]:
    """A command for each user, group and role that has the policy."""
    commands = list[str]()
    for kind in ("User", "Group", "Role"):
        query = {"PolicyArn": arn, "EntityFilter": kind}
        entity = kind.lower()
        for row in _pages(aws, "ListEntitiesForPolicy", f"Policy{kind}s", query):
            name = row[f"{kind}Name"]
            commands.append(f"aws iam detach-{entity}-policy --{entity}-name {name} --policy-arn {arn}")
    return commands


def _detach_from_role(aws: Aws, role: str) -> list[str]:
    """A command for each policy of the role that is not the stack's, which is named like the role."""
    commands = list[str]()
    query = {"RoleName": role}
    for row in _pages(aws, "ListAttachedRolePolicies", "AttachedPolicies", query):
        if row["PolicyArn"] not in ATTACHED_BEFORE:
            commands.append(f"aws iam detach-role-policy --role-name {role} --policy-arn {row['PolicyArn']}")
    for name in _pages(aws, "ListRolePolicies", "PolicyNames", query):
        if name != role.removeprefix(f"{TOOLKIT}-"):
            commands.append(f"aws iam delete-role-policy --role-name {role} --policy-name {name}")
    return commands


def _pages(aws: Aws, operation: str, key: str, query: Mapping[str, str]) -> list[Any]:
    """Empty for what no longer exists: an earlier `down` may have stopped halfway."""
    return unless_absent(partial(aws.pages, "iam", operation, key, query)) or []


# ---- contents of bucket, repository and logs

# Counting stops here; the exact size of a bucket with more objects does not matter.
MAX_PAGES = 100


@dataclass(frozen=True)
class Amount:
    """Objects or images."""

    count: int
    size: int  # bytes in total
    at_least: bool = False  # counting stopped early

    def __str__(self) -> str:
        return f"{'at least ' if self.at_least else ''}{self.count:,} ({self.size / 1e9:,.2f} GB)"


def in_bucket(aws: Aws, bucket: str) -> Amount:
    """All object versions and delete markers: all must go before the bucket can."""
    count = size = 0
    query: dict[str, str] = {"Bucket": bucket}
    for _ in range(MAX_PAGES):
        page = aws.call("s3", "ListObjectVersions", query)
        versions = page.get("Versions", [])
        count += len(versions) + len(page.get("DeleteMarkers", []))
        size += sum(version.get("Size", 0) for version in versions)
        if not page.get("IsTruncated"):
            return Amount(count, size)
        query |= {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page.get("NextVersionIdMarker", "")}
    return Amount(count, size, at_least=True)


def in_repository(aws: Aws, repository: str) -> Amount:
    """All images."""
    images = aws.pages("ecr", "DescribeImages", "imageDetails", {"repositoryName": repository})
    return Amount(len(images), sum(image.get("imageSizeInBytes") or 0 for image in images))


def has_logs(aws: Aws, group: str) -> bool:
    """Whether the log group has any stream."""
    query = {"logGroupName": group, "limit": 1}
    answer = unless_absent(partial(aws.call, "logs", "DescribeLogStreams", query))
    return bool(answer and answer["logStreams"])


def check_no_data(aws: Aws, stack: Stack, messages: Stack | None = None) -> None:
    """Raises AwsError with the commands that empty bucket and repository, unless they are empty or gone.

    messages: the stack of --notify, whose function would write into the empty bucket.
    """
    paragraphs = list[str]()
    bucket, repository = stack.resources.get("JobBucket"), stack.resources.get("Repository")
    objects = unless_absent(partial(in_bucket, aws, bucket)) if bucket else None
    if objects and objects.count:
        # `aws s3 rm` cannot delete old versions.  Python and boto3 are installed wherever this runs.
        end = f"  python -m launch.infra up --no-notify --region {aws.region}\n" if messages else ""
        empty = f"""  python -c 'import boto3; boto3.resource("s3").Bucket("{bucket}").object_versions.delete()'"""
        paragraphs.append(f"bucket {bucket} holds objects and old versions: {objects}\n{end}{empty}")
    images = unless_absent(partial(in_repository, aws, repository)) if repository else None
    if images and images.count:
        delete = f"aws ecr delete-repository --force --repository-name {repository} --region {aws.region}"
        paragraphs.append(f"repository {repository} holds images: {images}\n  {delete}")
    if paragraphs:
        raise AwsError(
            "the stack holds data:\n" + "\n".join(paragraphs) + "\nDelete it with these commands, which need "
            "s3:DeleteObject, s3:DeleteObjectVersion and ecr:BatchDeleteImage: infra/iam/administrator.json grants "
            "none of them. Or keep it: python -m launch.infra down --keep-data",
            "HoldsData",
        )
