"""What must be asked of AWS before the account is changed.  Reads only; each question is one function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.lookup import Lookups, region_or_some
from launch.core.names import tag_values
from launch.infra.checks import check_region
from launch.infra.facts import PLANNED, Facts, Stack, Vpc
from launch.infra.template import KEPT, STACK, STACK_TAG, Resource, filled, read, resources
from trainer.errors import SettingsError, TrainerError

# Error codes that mean: it is not there.
ABSENT = {"NoSuchEntity", "404", "NoSuchBucket", "RepositoryNotFoundException", "ValidationError",
          "ResourceNotFoundException"}  # fmt: skip

# How what is the account's is looked up: its kind, the operation, and what that wants.
WIDE = {
    "AWS::IAM::Role": ("role", "GetRole", "RoleName"),
    "AWS::IAM::InstanceProfile": ("instance profile", "GetInstanceProfile", "InstanceProfileName"),
    "AWS::IAM::ManagedPolicy": ("policy", "GetPolicy", "PolicyArn"),
}


def look_up(aws: Aws, vpc_id: str | None = None) -> Facts:
    """All facts.  Raises nothing of AWS's: what failed is among the problems."""
    try:
        check_region(aws.region)
        region, account = aws.region, str(aws.call("sts", "GetCallerIdentity")["Account"])
    except TrainerError as problem:
        return Facts(region_or_some(aws), problems=(problem,))
    lookups = Lookups()
    stack = lookups.required(lambda: stack_of(aws), None)
    ours = set(stack.resources) if stack else set[str]()
    named = [thing for thing in resources(read(filled(account, region)), {}) if thing.id not in ours]
    nothing: tuple[str, ...] = ()
    adopted = lookups.required(lambda: _kept(aws, named, account), nothing)
    wide = lookups.required(lambda: _account_wide(aws, named, account), Wide())
    wanted = vpc_id if vpc_id is not None or stack is None else stack.parameters.get("VpcId")
    vpc = lookups.required(lambda: _vpc(aws, wanted, stack), None) if wanted else None
    problems = {str(problem): problem for problem in lookups.problems}
    return Facts(region, account, stack, adopted, wide.strangers, wide.owner, vpc, tuple(problems.values()))


def stack_of(aws: Aws, name: str = STACK) -> Stack | None:
    """The stack with what it holds, or None: there is none, or one that was only planned."""
    try:
        (row,) = aws.call("cloudformation", "DescribeStacks", {"StackName": name})["Stacks"]
    except AwsError as error:
        if error.aws_code == "ValidationError":  # how CloudFormation says that it does not exist
            return None
        raise
    if row["StackStatus"] == PLANNED:
        return None
    rows = aws.pages("cloudformation", "ListStackResources", "StackResourceSummaries", {"StackName": row["StackId"]})
    held = {
        thing["LogicalResourceId"]: thing
        for thing in rows
        if thing.get("LogicalResourceId") and thing["ResourceStatus"] not in ("DELETE_COMPLETE", "DELETE_SKIPPED")
    }
    return Stack(
        id=row["StackId"],
        status=row["StackStatus"],
        parameters={slot["ParameterKey"]: slot.get("ParameterValue", "") for slot in row.get("Parameters", ())},
        outputs={output["OutputKey"]: output["OutputValue"] for output in row.get("Outputs", ())},
        drift=row.get("DriftInformation", {}).get("StackDriftStatus", "NOT_CHECKED"),
        resources={name: thing.get("PhysicalResourceId", "") for name, thing in held.items()},
        types={name: thing["ResourceType"] for name, thing in held.items()},
    )


def _is_there(aws: Aws, thing: Resource, account: str) -> bool:
    """Whether something of the account's has its name already.  Raises AwsError for what cannot be adopted."""
    if thing.type == "AWS::Logs::LogGroup":
        groups = aws.call("logs", "DescribeLogGroups", {"logGroupNamePrefix": thing.name})["logGroups"]
        return any(group["logGroupName"] == thing.name for group in groups)
    if thing.type == "AWS::S3::Bucket":
        return _has_bucket(aws, thing.name, account)
    found = unless_absent(partial(aws.call, "ecr", "DescribeRepositories", {"repositoryNames": [thing.name]}))
    for repository in (found or {}).get("repositories", ()):
        _check_key(repository)
    return found is not None


def _has_bucket(aws: Aws, bucket: str, account: str) -> bool:
    asked = {"Bucket": bucket, "ExpectedBucketOwner": account}
    try:
        return unless_absent(partial(aws.call, "s3", "HeadBucket", asked)) is not None
    except AwsError as error:
        if error.aws_code != "403":
            raise
        raise AwsError(
            f"bucket {bucket} is there and closed to these credentials: ask for infra/iam/administrator.json; if you "
            "have it, the bucket is another account's, so set up another --region, and tell AWS.",
            error.aws_code,
        ) from error


def _check_key(repository: Mapping[str, Any]) -> None:
    """Raises AwsError if AWS cannot adopt the repository: how it is encrypted can never be changed."""
    how = repository.get("encryptionConfiguration", {}).get("encryptionType", "AES256")
    if how != "AES256":
        name = repository["repositoryName"]
        raise AwsError(
            f"repository {name} was made by hand and is encrypted with {how}, the stack's is with AES256, and neither "
            f"can be changed; delete it with its images: aws ecr delete-repository --force --repository-name {name}",
            "AlreadyExists",
        )


def unless_absent(ask: Callable[[], Any]) -> Any:
    """The answer, or None if AWS says that there is no such thing."""
    try:
        return ask()
    except AwsError as error:
        if error.aws_code in ABSENT:
            return None
        raise


def _kept(aws: Aws, named: Sequence[Resource], account: str) -> tuple[str, ...]:
    """The ids of what holds data and is there, but not in the stack."""
    return tuple(thing.id for thing in named if thing.id in KEPT and _is_there(aws, thing, account))


@dataclass(frozen=True)
class Wide:
    """What is the account's and is there, but not in the stack: as in Facts."""

    owner: str | None = None
    strangers: tuple[tuple[str, str], ...] = ()


def _account_wide(aws: Aws, named: Sequence[Resource], account: str) -> Wide:
    """The region whose stack has made the roles, if another's; or what has been made in another way."""
    strangers = list[tuple[str, str]]()
    for thing in named:
        if thing.type not in WIDE:
            continue
        kind, operation, params = WIDE[thing.type]
        arn = f"arn:aws:iam::{account}:policy/{thing.name}"
        found = unless_absent(
            partial(aws.call, "iam", operation, {params: arn if params == "PolicyArn" else thing.name})
        )
        if found is None:
            continue
        maker = tag_values(found.get("Role", {})).get(STACK_TAG)
        if maker not in (None, aws.region):
            return Wide(owner=maker)
        strangers.append((kind, thing.name))
    return Wide(strangers=tuple(strangers))


def _vpc(aws: Aws, wanted: str, stack: Stack | None) -> Vpc:
    """The network, with the route tables that have no way to S3 of somebody else's, which AWS would refuse."""
    rows = aws.call("ec2", "DescribeVpcs", {"VpcIds": [wanted]})["Vpcs"]
    if not rows:
        raise SettingsError(f"--vpc-id {wanted} is not in {aws.region}; give one of aws ec2 describe-vpcs.")
    mine = {"Filters": [{"Name": "vpc-id", "Values": [wanted]}]}
    tables = [table["RouteTableId"] for table in aws.pages("ec2", "DescribeRouteTables", "RouteTables", mine)]
    endpoints = aws.pages("ec2", "DescribeVpcEndpoints", "VpcEndpoints", mine)
    own = set(stack.resources.values()) if stack else set[str]()
    others = [endpoint for endpoint in endpoints if endpoint["VpcEndpointId"] not in own]
    taken = {
        table
        for endpoint in others
        if endpoint["ServiceName"].endswith(".s3")
        for table in endpoint.get("RouteTableIds", ())
    }
    ranges = [row["CidrBlock"] for row in rows[0].get("CidrBlockAssociationSet", ()) if _is_used(row)]
    return Vpc(
        cidr=rows[0]["CidrBlock"],
        route_tables=tuple(sorted(set(tables) - taken)),
        other_cidrs=tuple(cidr for cidr in ranges if cidr != rows[0]["CidrBlock"]),
        named=tuple(endpoint["ServiceName"] for endpoint in others if endpoint.get("PrivateDnsEnabled")),
    )


def _is_used(row: Mapping[str, Any]) -> bool:
    return bool(row["CidrBlockState"]["State"] == "associated")
