"""Look-ups in AWS before the account is changed.  Reads only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from launch.aws.client import Answer, Aws
from launch.aws.lookup import Lookups, region_or_some
from launch.aws.names import STACK_TAG, TOOLKIT, tag_values
from launch.aws.network import describe_vpc, own_dns
from launch.aws.regions import check_region
from launch.core.errors import AwsError
from launch.infra.template import KEPT, NOTIFY_STACK, STACK, Resource, filled, read, resources
from trainer.errors import SettingsError, TrainerError

# State of a stack that was planned and never created.
PLANNED = "REVIEW_IN_PROGRESS"


@dataclass(frozen=True)
class Stack:
    """A CloudFormation stack."""

    id: str  # its ARN
    status: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    drift: str = ""  # CloudFormation's state of it
    resources: Mapping[str, str] = field(default_factory=dict)  # {logical id: physical id}
    types: Mapping[str, str] = field(default_factory=dict)  # {logical id: type}

    @property
    def is_busy(self) -> bool:
        """Whether CloudFormation is changing it."""
        return self.status.endswith("_IN_PROGRESS") and self.status != PLANNED

    @property
    def has_roles(self) -> bool:
        """Whether it holds the roles, which jobs and stacks of all regions use."""
        return "NodeRole" in self.resources

    def physical_ids(self, kind: str) -> list[str]:
        """Physical ids of its resources of one type."""
        return [id_ for name, id_ in self.resources.items() if id_ and self.types.get(name) == kind]


@dataclass(frozen=True)
class Vpc:
    """A network.  Endpoints of the stack itself do not count."""

    cidr: str  # its primary range
    route_tables: tuple[str, ...]  # those without a gateway endpoint to S3
    other_cidrs: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()  # addresses of its own DNS servers
    private_services: tuple[str, ...] = ()  # services that have an endpoint with private DNS names


@dataclass(frozen=True)
class Facts:
    """The facts of an account."""

    region: str
    account: str = ""  # "" if it could not be looked up
    stack: Stack | None = None
    adopted: tuple[str, ...] = ()  # logical ids of existing resources with data that the stack takes over
    conflicts: tuple[tuple[str, str], ...] = ()  # (kind, name) of existing resources that it cannot
    owner_region: str | None = None  # the region whose stack holds the roles, if it is another
    vpc: Vpc | None = None
    budget: float | None = None  # USD per month of the account's budget that `up` made, or None
    problems: tuple[TrainerError, ...] = ()
    unknown: tuple[str, ...] = ()  # look-ups that failed, and are not needed
    messages: Stack | None = None  # that of --notify


# Error codes for what does not exist.
ABSENT = {"NoSuchEntity", "404", "NoSuchBucket", "RepositoryNotFoundException", "ValidationError",
          "ResourceNotFoundException", "NotFoundException"}  # fmt: skip

# Types that exist once per account -> kind for a reader, operation that looks one up, its parameter.
WIDE = {
    "AWS::IAM::Role": ("role", "GetRole", "RoleName"),
    "AWS::IAM::InstanceProfile": ("instance profile", "GetInstanceProfile", "InstanceProfileName"),
    "AWS::IAM::ManagedPolicy": ("policy", "GetPolicy", "PolicyArn"),
}


def look_up(aws: Aws, vpc_id: str | None = None) -> Facts:
    """Look up all facts; AWS's failures become problems.

    vpc_id: "" for no VPC, None for the stack's.
    """
    try:
        check_region(aws.region)
        region, account = aws.region, str(aws.call("sts", "GetCallerIdentity")["Account"])
    except TrainerError as problem:
        return Facts(region_or_some(aws), problems=(problem,))
    lookups = Lookups()
    stack = lookups.required(lambda: stack_of(aws), None)
    messages = lookups.required(lambda: stack_of(aws, NOTIFY_STACK), None)
    in_stack = stack.resources if stack else {}
    missing = [thing for thing in resources(read(filled(account, region)), {}) if thing.id not in in_stack]
    no_names: tuple[str, ...] = ()
    adopted = lookups.required(lambda: _existing_data(aws, missing, account), no_names)
    wide = lookups.required(lambda: _account_wide(aws, missing, account), Wide())
    if vpc_id is None and stack is not None:
        vpc_id = stack.parameters.get("VpcId")
    vpc = lookups.required(lambda: _vpc(aws, vpc_id, stack), None) if vpc_id else None
    no_budget: float | None = None
    budget = lookups.optional("the budget", lambda: _budget(aws, account), no_budget)
    return Facts(
        region,
        account,
        stack,
        adopted,
        wide.conflicts,
        wide.owner_region,
        vpc,
        budget,
        tuple(lookups.problems),
        tuple(lookups.unknown),
        messages,
    )


def _budget(aws: Aws, account: str) -> float | None:
    """https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_budgets_DescribeBudget.html"""
    query = {"AccountId": account, "BudgetName": TOOLKIT}
    answer = unless_absent(partial(aws.call, "budgets", "DescribeBudget", query))
    return None if answer is None else float(answer["Budget"]["BudgetLimit"]["Amount"])


def stack_of(aws: Aws, name: str = STACK) -> Stack | None:
    """The stack with its resources; None if there is none, or one that was only planned."""
    try:
        (row,) = aws.call("cloudformation", "DescribeStacks", {"StackName": name})["Stacks"]
    except AwsError as error:
        if error.aws_code == "ValidationError":  # CloudFormation's code for a stack that does not exist
            return None
        raise
    if row["StackStatus"] == PLANNED:
        return None
    held = _held(aws, row["StackId"])
    return Stack(
        id=row["StackId"],
        status=row["StackStatus"],
        parameters={slot["ParameterKey"]: slot.get("ParameterValue", "") for slot in row.get("Parameters", ())},
        outputs={output["OutputKey"]: output["OutputValue"] for output in row.get("Outputs", ())},
        drift=row.get("DriftInformation", {}).get("StackDriftStatus", "NOT_CHECKED"),
        resources={name: thing.get("PhysicalResourceId", "") for name, thing in held.items()},
        types={name: thing["ResourceType"] for name, thing in held.items()},
    )


def _held(aws: Aws, stack: str) -> dict[str, Answer]:
    """{logical id: resource} of what the stack holds now."""
    rows = aws.pages("cloudformation", "ListStackResources", "StackResourceSummaries", {"StackName": stack})
    gone = ("DELETE_COMPLETE", "DELETE_SKIPPED")
    return {
        row["LogicalResourceId"]: row
        for row in rows
        if row.get("LogicalResourceId") and row["ResourceStatus"] not in gone
    }


def unless_absent(ask: Callable[[], Any]) -> Any:
    """The answer, or None if AWS says that there is no such thing."""
    try:
        return ask()
    except AwsError as error:
        if error.aws_code in ABSENT:
            return None
        raise


def _existing_data(aws: Aws, missing: Sequence[Resource], account: str) -> tuple[str, ...]:
    """Ids of the resources with data that exist, but not in the stack.  Raises AwsError if one cannot be adopted."""
    return tuple(thing.id for thing in missing if thing.id in KEPT and _exists(aws, thing, account))


def _exists(aws: Aws, thing: Resource, account: str) -> bool:
    if thing.type == "AWS::Logs::LogGroup":
        groups = aws.call("logs", "DescribeLogGroups", {"logGroupNamePrefix": thing.name})["logGroups"]
        return any(group["logGroupName"] == thing.name for group in groups)
    if thing.type == "AWS::S3::Bucket":
        return _has_bucket(aws, thing.name, account)
    return _has_repository(aws, thing.name)


def _has_bucket(aws: Aws, bucket: str, account: str) -> bool:
    query = {"Bucket": bucket, "ExpectedBucketOwner": account}
    try:
        return unless_absent(partial(aws.call, "s3", "HeadBucket", query)) is not None
    except AwsError as error:
        if error.aws_code != "403":
            raise
        raise AwsError(
            f"bucket {bucket} exists, and these credentials may not read it: ask for infra/iam/administrator.json; if "
            "you have that, the bucket belongs to another account: set up another --region, and report it to AWS.",
            error.aws_code,
        ) from error


def _has_repository(aws: Aws, name: str) -> bool:
    """Raises AwsError if AWS cannot adopt it: the encryption of a repository can never be changed."""
    answer = unless_absent(partial(aws.call, "ecr", "DescribeRepositories", {"repositoryNames": [name]}))
    if answer is None:
        return False
    (repository,) = answer["repositories"]
    encryption = repository.get("encryptionConfiguration", {}).get("encryptionType", "AES256")
    if encryption != "AES256":
        raise AwsError(
            f"repository {name} was created outside the stack with {encryption} encryption; the stack needs AES256, "
            "and AWS cannot change it; delete it with its images: aws ecr delete-repository --force "
            f"--repository-name {name}",
            "AlreadyExists",
        )
    return True


@dataclass(frozen=True)
class Wide:
    """Resources that exist once per account, but not in this stack; see Facts."""

    owner_region: str | None = None
    conflicts: tuple[tuple[str, str], ...] = ()


def _account_wide(aws: Aws, missing: Sequence[Resource], account: str) -> Wide:
    """The region whose stack made the roles, if it is another; or those created outside any stack."""
    conflicts = list[tuple[str, str]]()
    for thing in missing:
        if thing.type not in WIDE:
            continue
        kind, operation, parameter = WIDE[thing.type]
        name = f"arn:aws:iam::{account}:policy/{thing.name}" if parameter == "PolicyArn" else thing.name
        answer = unless_absent(partial(aws.call, "iam", operation, {parameter: name}))
        if answer is None:
            continue
        owner_region = tag_values(answer.get("Role", {})).get(STACK_TAG)
        if owner_region not in (None, aws.region):
            return Wide(owner_region=owner_region)
        conflicts.append((kind, thing.name))
    return Wide(conflicts=tuple(conflicts))


def _vpc(aws: Aws, vpc_id: str, stack: Stack | None) -> Vpc:
    vpcs = aws.call("ec2", "DescribeVpcs", {"VpcIds": [vpc_id]})["Vpcs"]
    if not vpcs:
        raise SettingsError(f"--vpc-id {vpc_id} is not in {aws.region}; choose one of aws ec2 describe-vpcs.")
    query = {"Filters": [{"Name": "vpc-id", "Values": [vpc_id]}]}
    tables = {table["RouteTableId"] for table in aws.pages("ec2", "DescribeRouteTables", "RouteTables", query)}
    in_stack = set(stack.resources.values()) if stack else set[str]()
    endpoints = aws.pages("ec2", "DescribeVpcEndpoints", "VpcEndpoints", query)
    others = [endpoint for endpoint in endpoints if endpoint["VpcEndpointId"] not in in_stack]
    cidr = vpcs[0]["CidrBlock"]
    return Vpc(
        cidr=cidr,
        # AWS refuses a second endpoint to S3 in one route table.
        route_tables=tuple(sorted(tables - _tables_with_s3(others))),
        other_cidrs=tuple(other for other in _cidrs(vpcs[0]) if other != cidr),
        dns=own_dns(aws, describe_vpc(aws, vpc_id)),
        private_services=tuple(endpoint["ServiceName"] for endpoint in others if endpoint.get("PrivateDnsEnabled")),
    )


def _tables_with_s3(endpoints: Sequence[Mapping[str, Any]]) -> set[str]:
    """Route tables that have one of these gateway endpoints to S3."""
    tables = set[str]()
    for endpoint in endpoints:
        if endpoint["ServiceName"].endswith(".s3"):
            tables.update(endpoint.get("RouteTableIds", ()))
    return tables


def _cidrs(vpc: Mapping[str, Any]) -> list[str]:
    """The ranges in use."""
    rows = vpc.get("CidrBlockAssociationSet", ())
    return [row["CidrBlock"] for row in rows if row["CidrBlockState"]["State"] == "associated"]
