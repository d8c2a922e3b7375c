"""Options + facts -> the plan: its requests, what they cost, what prevents them.  Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, repeat
from typing import Any

from launch.aws.names import STACK_TAG, TOOLKIT, bucket_of, client_token
from launch.aws.regions import check_region
from launch.core.errors import AwsError
from launch.core.plan import Fact, Plan, Request
from launch.infra.lookup import Facts, Stack
from launch.infra.options import DOWN, UP, SetUpOptions, parameters
from launch.infra.template import (
    KEPT,
    STACK,
    WITH_THEM,
    Resource,
    filled,
    keeping,
    left_out,
    left_out_text,
    rates,
    read,
    resources,
)
from trainer.errors import SettingsError, TrainerError

# Stands for the account in a plan without one.
SOME_ACCOUNT = "123456789012"
SPOT = "spot.amazonaws.com"


# The template's parameters for what a VPC has beside its primary range; AWS's own limit is four more at first.
# https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
DNS_SERVERS = ("DnsServer", "DnsServer2")  # of up to four; a node asks the next only if the first does not answer
OTHER_CIDRS = ("VpcCidr2", "VpcCidr3", "VpcCidr4", "VpcCidr5")


@dataclass(frozen=True)
class SetUp:
    """The plan's requests by purpose."""

    create: Request
    execute: Request
    budget: tuple[Request, ...]  # empty to leave it as it is
    spot: Request
    holds: tuple[Resource, ...]  # the resources of the stack


def plan(options: SetUpOptions, facts: Facts, now: datetime) -> Plan[SetUp]:
    """The plan to create or change the stack."""
    body = keeping(filled(facts.account or SOME_ACCOUNT, facts.region), facts.adopted)
    template, stack = read(body), facts.stack
    given = _given(options, facts)
    values = {**(stack.parameters if stack else {}), **given}
    # The same name for a repeated request whose answer was lost, another for other parameters.
    name = f"infra-{now:%Y%m%d-%H%M%S}-{client_token(body, sorted(given.items()))[:8]}"
    holds = resources(template, values)
    create, execute, budget = _create(body, template, given, facts, name), _execute(name), _set_budget(options, facts)
    setup = SetUp(create, execute, budget, _allow_spot(), holds)
    return Plan(
        title=f"stack {STACK} in {facts.region}",
        payload=setup,
        facts=_shown(options, facts),
        steps=(create, execute, *budget, setup.spot),
        rates=_rates(template, values, holds),
        warnings=_warnings(facts, values),
        problems=(*facts.problems, *problems_of(facts, template, values)),
    )


def _given(options: SetUpOptions, facts: Facts) -> dict[str, str]:
    """The parameters with a new value; others stay unchanged."""
    given = {**parameters(options), "AccountWide": "no" if facts.owner_region else "yes"}
    if facts.vpc is not None:
        given |= {"VpcCidr": facts.vpc.cidr, "RouteTableIds": ",".join(facts.vpc.route_tables)}
        servers = [f"{server}/32" for server in facts.vpc.dns]
        given |= dict(zip(DNS_SERVERS, chain(servers, repeat("")), strict=False))
        given |= dict(zip(OTHER_CIDRS, chain(facts.vpc.other_cidrs, repeat("")), strict=False))
    return given


# ---- requests


def _create(body: str, template: Mapping[str, Any], given: Mapping[str, str], facts: Facts, name: str) -> Request:
    params = {
        "StackName": STACK,
        "ChangeSetName": name,
        "ChangeSetType": "UPDATE" if facts.stack else "CREATE",
        "TemplateBody": body,
        "Parameters": _slots(template, given, facts.stack),
        "Capabilities": ["CAPABILITY_NAMED_IAM"],
        "Tags": [{"Key": STACK_TAG, "Value": facts.region}],
        **_mode(facts),
    }
    why = "ask AWS what would change"
    return Request("cloudformation", "CreateChangeSet", params, why, ("AlreadyExistsException",))


def _slots(template: Mapping[str, Any], given: Mapping[str, str], stack: Stack | None) -> list[dict[str, Any]]:
    """New values, and for the stack's other parameters their present ones."""
    slots: list[dict[str, Any]] = [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
    for name in template["Parameters"]:
        if stack is not None and name in stack.parameters and name not in given:
            slots.append({"ParameterKey": name, "UsePreviousValue": True})
    return slots


def _mode(facts: Facts) -> dict[str, Any]:
    mode: dict[str, Any] = {}
    if facts.adopted:
        mode["ImportExistingResources"] = True
    elif facts.stack is not None:
        mode["DeploymentMode"] = "REVERT_DRIFT"
    if facts.stack is None:
        mode["OnStackFailure"] = "DELETE"  # an empty stack would block the next try
    return mode


def _execute(name: str) -> Request:
    params = {"StackName": STACK, "ChangeSetName": name, "ClientRequestToken": name}
    return Request("cloudformation", "ExecuteChangeSet", params, "make the changes")


def _allow_spot() -> Request:
    done_already = ("InvalidInput", "InvalidInputException", "EntityAlreadyExists")
    params = {"AWSServiceName": SPOT}
    return Request("iam", "CreateServiceLinkedRole", params, "allow the account to use spot instances", done_already)


def _set_budget(options: SetUpOptions, facts: Facts) -> tuple[Request, ...]:
    """Makes the account's budget anew, as AWS cannot change whom one notifies; or removes it, for 0 USD.

    By its own API, which is global: CloudFormation has AWS::Budgets::Budget in half of the regions only.
    https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_budgets_CreateBudget.html
    """
    if options.monthly_usd is None:
        return ()
    account = facts.account or SOME_ACCOUNT
    remove = _delete_budget(account)
    if not options.monthly_usd:
        return (remove,)
    budget = {
        "BudgetName": TOOLKIT,
        "BudgetType": "COST",
        "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": f"{options.monthly_usd:.12g}", "Unit": "USD"},
    }
    to = [{"SubscriptionType": "EMAIL", "Address": options.email}]
    alerts = [
        {
            "Notification": {"NotificationType": kind, "ComparisonOperator": "GREATER_THAN", "Threshold": percent},
            "Subscribers": to,
        }
        for kind, percent in (("ACTUAL", 80), ("FORECASTED", 100))
    ]
    params = {"AccountId": account, "Budget": budget, "NotificationsWithSubscribers": alerts}
    create = Request("budgets", "CreateBudget", params, "make the budget", ("DuplicateRecordException",))
    return (remove, create)


def _delete_budget(account: str) -> Request:
    params = {"AccountId": account, "BudgetName": TOOLKIT}
    return Request("budgets", "DeleteBudget", params, "delete the present budget, if any", ("NotFoundException",))


# ---- what is shown


def _shown(options: SetUpOptions, facts: Facts) -> tuple[Fact, ...]:
    bucket = bucket_of(facts.account or SOME_ACCOUNT, facts.region)
    roles = f"in the stack of {facts.owner_region}" if facts.owner_region else "in this stack, for all regions"
    rows = [
        _account(facts),
        _stack(facts),
        Fact("bucket", bucket),
        Fact("roles_region", facts.owner_region or facts.region, roles, label="roles"),
        _budget(options, facts),
    ]
    if absent := left_out(facts.region):
        rows.append(Fact("left_out", dict(absent), left_out_text(facts.region)))
    if facts.adopted:
        text = ", ".join(facts.adopted) + ": they exist already and keep their contents"
        rows.append(Fact("adopted", list(facts.adopted), text))
    return tuple(rows)


def _account(facts: Facts) -> Fact:
    return Fact("account", facts.account or None, facts.account or f"not looked up; {SOME_ACCOUNT} stands in for it")


def _stack(facts: Facts) -> Fact:
    if not facts.account:
        return Fact("stack", None, "not looked up")
    if facts.stack is None:
        return Fact("stack", None, "does not exist yet")
    stack = facts.stack
    value = {"status": stack.status, "drift": stack.drift, "resources": len(stack.resources)}
    return Fact("stack", value, f"{stack.status}, drift {stack.drift}, {len(stack.resources)} resources")


def _budget(options: SetUpOptions, facts: Facts) -> Fact:
    if options.monthly_usd:
        text = f"{options.monthly_usd:,.2f} USD per month, alerts to {options.email}"
        return Fact("budget", {"usd_per_month": options.monthly_usd, "email": options.email}, text)
    if facts.budget is None or options.monthly_usd == 0:
        return Fact("budget", None, "none")
    return Fact("budget", {"usd_per_month": facts.budget}, f"{facts.budget:,.2f} USD per month")


def _rates(template: Mapping[str, Any], values: Mapping[str, str], holds: tuple[Resource, ...]) -> tuple[Fact, ...]:
    subnets = [subnet for subnet in values.get("SubnetIds", "").split(",") if subnet]
    sweep_minutes = values.get("SweepMinutes", template["Parameters"]["SweepMinutes"]["Default"])
    interfaces = sum(thing.is_interface for thing in holds)
    return rates({thing.id: thing.type for thing in holds}, len(subnets), interfaces, float(sweep_minutes))


def _warnings(facts: Facts, values: Mapping[str, str]) -> tuple[str, ...]:
    warnings = list(facts.unknown)
    closed = facts.vpc.other_cidrs[len(OTHER_CIDRS) :] if facts.vpc else ()
    if closed and values.get("SubnetIds"):
        others = ", ".join(closed)
        warnings.append(f"the endpoints accept five ranges of the VPC; nodes in {others} need internet access.")
    if facts.adopted:
        warnings.append(
            f"adopted resources keep their settings for now: run {UP} again to apply the template's encryption, "
            "versioning, lifecycle and policy."
        )
    return tuple(warnings)


# ---- down


def down(facts: Facts, keep_data: bool, warnings: tuple[str, ...] = ()) -> Plan[None]:
    """The plan to delete the stack.  It must be unused and hold no data, which in_use.py checks."""
    stack = facts.stack
    steps: tuple[Request, ...] = ()
    if stack is not None:
        steps = (Request("cloudformation", "DeleteStack", {"StackName": stack.id}, "delete the stack"),)
        if not keep_data:
            steps += _removals(facts, stack)
        if stack.has_roles and facts.budget is not None:
            steps += (_delete_budget(facts.account),)
        if stack.has_roles:
            warnings += ("launches in other regions use the roles of this stack, too.",)
    kept = "kept, and billed as before" if keep_data else "deleted where empty"
    rows = (_account(facts), _stack(facts), Fact("keep_data", keep_data, kept, label="data"))
    title = f"delete stack {STACK} in {facts.region}"
    return Plan(title, None, rows, steps, warnings=warnings, problems=facts.problems)


def resource_rows(stack: Stack, keep_data: bool) -> list[tuple[str, str, str]]:
    """A row per resource: what happens to it, its name and its id."""
    for_data = "keep" if keep_data else "delete if empty"
    rows = list[tuple[str, str, str]]()
    for name, id_ in sorted(stack.resources.items()):
        rows.append((for_data if name in (*KEPT, *WITH_THEM) else "delete", name, id_))
    return rows


def _removals(facts: Facts, stack: Stack) -> tuple[Request, ...]:
    """Deletes what the stack keeps.  AWS refuses to delete a bucket or a repository with contents.

    Only resources of the stack: others of the same name may have been made outside it.
    """
    bucket = bucket_of(facts.account or SOME_ACCOUNT, facts.region)
    calls: dict[str, tuple[str, str, dict[str, str], str]] = {
        "JobBucket": ("s3", "DeleteBucket", {"Bucket": bucket}, "delete the empty bucket"),
        "Repository": ("ecr", "DeleteRepository", {"repositoryName": TOOLKIT}, "delete the empty repository"),
        "NodeLogs": ("logs", "DeleteLogGroup", {"logGroupName": f"/{TOOLKIT}/ec2"}, "delete the log group if empty"),
    }
    gone = ("NoSuchBucket", "404", "RepositoryNotFoundException", "ResourceNotFoundException")
    return tuple(Request(*calls[name], gone, name=name) for name in KEPT if name in stack.resources)


# ---- what prevents a stack from being created or changed, each with a remedy

# States in which CloudFormation accepts no change.
STUCK = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED", "IMPORT_ROLLBACK_FAILED")


def problems_of(facts: Facts, template: Mapping[str, Any], values: Mapping[str, str]) -> list[TrainerError]:
    """The reasons why the stack cannot be created or changed.  values: the parameters that it would have."""
    possible = (
        _no_vpc(values),
        _in_the_way(facts),
        _stuck(facts.stack),
        _second_endpoints(template, facts, values),
    )
    return [problem for problem in possible if problem is not None]


def _no_vpc(values: Mapping[str, str]) -> TrainerError | None:
    if values.get("VpcId"):
        return None
    if values.get("SecurityGroup") == "yes":
        return SettingsError("--security-group needs a VPC; give --vpc-id, too.")
    if values.get("SubnetIds"):
        return SettingsError("--endpoint-subnets need a VPC; give --vpc-id, too.")
    return None


def _in_the_way(facts: Facts) -> TrainerError | None:
    """Resources that the stack cannot adopt.  They hold no data, but may be in use."""
    if not facts.conflicts:
        return None
    names = ", ".join(f"{kind} {name}" for kind, name in facts.conflicts)
    return AwsError(
        f"created outside the stack, which cannot adopt them: {names}; delete them in the IAM console (roles and "
        f"policies hold no data) while no job runs, and run {UP} again.",
        "AlreadyExists",
    )


def _stuck(stack: Stack | None) -> TrainerError | None:
    if stack is None:
        return None
    if stack.status in STUCK:
        return AwsError(f"the stack is in {stack.status}; run {DOWN} --keep-data, then {UP} again.", stack.status)
    if stack.status == "UPDATE_ROLLBACK_FAILED":
        return AwsError(
            "AWS could not roll the stack back; run aws cloudformation continue-update-rollback "
            f"--stack-name {STACK}, then check python -m launch.infra show.",
            stack.status,
        )
    return None


def _second_endpoints(template: Mapping[str, Any], facts: Facts, values: Mapping[str, str]) -> TrainerError | None:
    """A VPC can have one endpoint with private DNS names per service."""
    if facts.vpc is None or not values.get("SubnetIds"):
        return None
    rows = [row["Properties"].get("ServiceName") for row in template["Resources"].values()]
    needed = {row["Fn::Sub"].replace("${AWS::Region}", facts.region) for row in rows if row}
    both = sorted(needed & set(facts.vpc.private_services))
    if not both:
        return None
    return SettingsError(
        f"the VPC has endpoints with private names for {', '.join(both)}, and AWS allows one per service; leave "
        "--endpoint-subnets out to use those, or delete them."
    )


# ---- checks of settings that need no call to AWS

ADDRESS = r"[^@\s,]+@[^@\s,]+\.[^@\s,.]+"
ACCOUNT = r"\d{12}"


def check_settings(options: SetUpOptions) -> None:
    """Raises SettingsError."""
    if bool(options.monthly_usd) != bool(options.email):
        raise SettingsError(
            "a budget needs both --monthly-usd and --email; give both, or --monthly-usd 0 alone to remove it."
        )
    if options.email and not re.fullmatch(ADDRESS, options.email):
        raise SettingsError(f"--email {options.email!r} is not an address; give one such as you@example.org.")
    if options.queue and options.no_queue:
        raise SettingsError("--queue and --no-queue contradict each other; give one of them.")
    if options.log_days is not None:
        _check_log_days(options.log_days)
    if options.region is not None:
        check_region(options.region)


def _check_log_days(days: int) -> None:
    allowed = read(filled("0" * 12, "us-east-1"))["Parameters"]["LogDays"]["AllowedValues"]
    if days in allowed:
        return
    below = [value for value in allowed if value < days]
    above = [value for value in allowed if value > days]
    nearest = " or ".join(str(value) for value in (*below[-1:], *above[:1]))
    raise SettingsError(f"--log-days {days} is not a period that CloudWatch offers; give {nearest}.")


def check_account(account: str) -> None:
    """Raises SettingsError."""
    if not re.fullmatch(ACCOUNT, account):
        raise SettingsError(f"--account {account!r} is not an account id; give its 12 digits, such as 123456789012.")
