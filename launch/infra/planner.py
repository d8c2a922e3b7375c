"""What was asked for + facts -> the plan: the requests, what they cost, what speaks against them.  Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from launch.core.errors import AwsError
from launch.core.names import bucket_of, client_token
from launch.core.plan import Plan, Request
from launch.infra.facts import Facts, Stack
from launch.infra.options import SetUpOptions, parameters
from launch.infra.template import (
    KEPT,
    STACK,
    STACK_TAG,
    WITH_THEM,
    Resource,
    costs,
    filled,
    read,
    resources,
)
from trainer.errors import SettingsError, TrainerError

# The account that a plan without an account is for.
SOME_ACCOUNT = "123456789012"
SPOT = "spot.amazonaws.com"

UP, PLAN, DOWN = "python -m launch.infra up", "python -m launch.infra plan", "python -m launch.infra down"


@dataclass(frozen=True)
class SetUp:
    """The plan's requests by what they are for; holds: what the stack will hold."""

    create: Request
    execute: Request
    spot: Request
    holds: tuple[Resource, ...]


def plan(options: SetUpOptions, facts: Facts, now: datetime) -> Plan:
    """The plan for setting the account up, or for changing how it is."""
    account = facts.account or SOME_ACCOUNT
    body = filled(account, facts.region)
    template, stack = read(body), facts.stack
    given = _given(options, facts)
    values = {**(stack.parameters if stack else {}), **given}
    given |= _budget_name(template, values)
    holds = resources(template, values)
    # Asked for again because its answer got lost, it is the same; asked for otherwise, it is another.
    change_set = f"infra-{now:%Y%m%d-%H%M%S}-{client_token(body, sorted(given.items()))[:8]}"
    setup = SetUp(
        create=_change_set(body, template, given, facts, change_set),
        execute=Request(
            "cloudformation",
            "ExecuteChangeSet",
            {"StackName": STACK, "ChangeSetName": change_set, "ClientRequestToken": change_set},
            "make the changes",
        ),
        spot=Request(
            "iam",
            "CreateServiceLinkedRole",
            {"AWSServiceName": SPOT},
            "let the account have spot machines",
            ("InvalidInput", "InvalidInputException", "EntityAlreadyExists"),
        ),
        holds=holds,
    )
    subnets = len([subnet for subnet in values.get("SubnetIds", "").split(",") if subnet])
    sweeps = values.get("SweepMinutes", template["Parameters"]["SweepMinutes"]["Default"])
    interfaces = sum(thing.is_interface for thing in holds)
    return Plan(
        title=f"stack {STACK} in {facts.region}",
        facts=_facts_rows(facts, values),
        steps=(setup.create, setup.execute, setup.spot),
        price=costs({thing.id: thing.type for thing in holds}, subnets, interfaces, float(sweeps)),
        warnings=_warnings(facts, values),
        problems=(*facts.problems, *_problems(options, facts, values), *_twice(template, facts, values)),
        inner=setup,
    )


def inner(made: Plan) -> SetUp:
    """What plan() left for whoever carries it out."""
    setup: Any = made.inner
    assert isinstance(setup, SetUp)
    return setup


def _given(options: SetUpOptions, facts: Facts) -> dict[str, str]:
    """The parameters whose values are known; the others stay as they are."""
    given = {**parameters(options), "AccountWide": "no" if facts.owner else "yes"}
    if facts.vpc is not None:
        given |= {"VpcCidr": facts.vpc.cidr, "RouteTableIds": ",".join(facts.vpc.route_tables)}
    return given


def _budget_name(template: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, str]:
    """A name for each address and each pair of thresholds: whom AWS writes to is for good, so it makes another budget,
    which cannot have the name of the first.
    """
    if not values.get("Email"):
        return {}
    rows = template["Resources"]["Budget"]["Properties"]["NotificationsWithSubscribers"]
    return {"BudgetName": f"{STACK}-{client_token(json.dumps(rows, sort_keys=True), values['Email'])[:8]}"}


def _change_set(body: str, template: Mapping[str, Any], given: Mapping[str, str], facts: Facts, name: str) -> Request:
    stack = facts.stack
    kept = [name for name in template["Parameters"] if stack and name in stack.parameters and name not in given]
    slots: list[dict[str, Any]] = [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
    slots += [{"ParameterKey": name, "UsePreviousValue": True} for name in kept]
    if facts.adopted:
        how: dict[str, Any] = {"ImportExistingResources": True}
    else:
        how = {"DeploymentMode": "REVERT_DRIFT"} if stack else {}  # what was changed by hand comes back
    if stack is None:
        how |= {"OnStackFailure": "DELETE"}  # or an empty stack would be in the way
    params = {
        "StackName": STACK,
        "ChangeSetName": name,
        "ChangeSetType": "UPDATE" if stack else "CREATE",
        "TemplateBody": body,
        "Parameters": slots,
        "Capabilities": ["CAPABILITY_NAMED_IAM"],
        "Tags": [{"Key": STACK_TAG, "Value": facts.region}],
        **how,
    }
    return Request("cloudformation", "CreateChangeSet", params, "ask what would change", ("AlreadyExistsException",))


def _facts_rows(facts: Facts, values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    stack = facts.stack
    state = f"{stack.status}, drift {stack.drift}" if stack else "not there yet"
    if not facts.account:
        state = "never looked up"
    roles = f"in the stack of {facts.owner}" if facts.owner else "in this stack, for all regions"
    rows = [
        ("account", facts.account or f"never looked up; {SOME_ACCOUNT} stands for it"),
        ("stack", state),
        ("bucket", bucket_of(facts.account or SOME_ACCOUNT, facts.region)),
        ("roles", roles),
        ("budget", _budget(facts, values)),
    ]
    if facts.adopted:
        rows.append(("adopted", ", ".join(facts.adopted) + ": there already, kept with all they hold"))
    return tuple(rows)


def _budget(facts: Facts, values: Mapping[str, str]) -> str:
    usd, mail = float(values.get("MonthlyUsd", 0) or 0), values.get("Email", "")
    if facts.owner:
        return f"in the stack of {facts.owner}, if any"
    return f"{usd:,.2f} USD a month, to {mail}" if usd and mail else "none"


def _warnings(facts: Facts, values: Mapping[str, str]) -> tuple[str, ...]:
    found = list[str]()
    if facts.vpc and facts.vpc.other_cidrs and values.get("SubnetIds"):
        others = ", ".join(facts.vpc.other_cidrs)
        found.append(f"the endpoints let in {facts.vpc.cidr} only; nodes in {others} need a way to the internet.")
    if facts.adopted:
        found.append(_ADOPTED)
    return tuple(found)


_ADOPTED = (
    f"what is adopted keeps its settings at first: run {UP} once more, and it gets the template's "
    "(encryption, versions, lifecycle, policy)."
)


def _problems(options: SetUpOptions, facts: Facts, values: Mapping[str, str]) -> list[TrainerError]:
    found: list[TrainerError] = []
    if facts.owner and (options.monthly_usd or options.email):
        found.append(
            SettingsError(f"the budget is the account's; give --monthly-usd and --email with --region {facts.owner}.")
        )
    if bool(float(values.get("MonthlyUsd") or 0)) != bool(values.get("Email")) and (
        options.monthly_usd or options.email
    ):
        found.append(SettingsError("a budget takes both --monthly-usd and --email; give the other one, too."))
    if values.get("SecurityGroup") == "yes" and not values.get("VpcId"):
        found.append(SettingsError("--security-group lies in a VPC; give --vpc-id, too."))
    if values.get("SubnetIds") and not values.get("VpcId"):
        found.append(SettingsError("--endpoint-subnets lie in a VPC; give --vpc-id, too."))
    if facts.strangers:
        found.append(_in_the_way(facts.strangers))
    if facts.stack is not None:
        found += _stuck(facts.stack)
    return found


def _twice(template: Mapping[str, Any], facts: Facts, values: Mapping[str, str]) -> list[TrainerError]:
    """A VPC has one endpoint at most with AWS's own name for a service."""
    rows = [row["Properties"].get("ServiceName", {}) for row in template["Resources"].values()]
    ours = {row["Fn::Sub"].replace("${AWS::Region}", facts.region) for row in rows if row}
    there = sorted(ours & set(facts.vpc.named)) if facts.vpc and values.get("SubnetIds") else []
    if not there:
        return []
    return [
        SettingsError(
            f"the VPC has endpoints with private names for {', '.join(there)}, and can have one of each; leave "
            "--endpoint-subnets out and use those, or delete them."
        )
    ]


def _in_the_way(strangers: tuple[tuple[str, str], ...]) -> TrainerError:
    """What the stack cannot take over: nothing is lost if it is made anew, but somebody may use it now."""
    names = ", ".join(f"{kind} {name}" for kind, name in strangers)
    return AwsError(
        f"made by hand, so the stack cannot make them: {names}; delete them in the IAM console (roles and policies "
        f"hold no data), while no job runs, and start {UP} again.",
        "AlreadyExists",
    )


def _stuck(stack: Stack) -> list[TrainerError]:
    """States in which CloudFormation takes no change."""
    if stack.status in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED",
                        "IMPORT_ROLLBACK_FAILED"):  # fmt: skip
        return [AwsError(f"the stack is in {stack.status}; run {DOWN} --keep-data, then {UP} again.", stack.status)]
    if stack.status == "UPDATE_ROLLBACK_FAILED":
        return [
            AwsError(
                "the stack could not go back to how it was; run aws cloudformation continue-update-rollback "
                f"--stack-name {STACK}, and look at python -m launch.infra show.",
                stack.status,
            )
        ]
    return []


# ---- down


def down(facts: Facts, keep_data: bool, warnings: tuple[str, ...] = ()) -> Plan:
    """The plan for taking the stack down; who needs it, and what bucket and repository hold, is looked at by who
    carries it out.
    """
    stack = facts.stack
    steps: tuple[Request, ...] = ()
    if stack is not None:
        steps = (Request("cloudformation", "DeleteStack", {"StackName": stack.id}, "delete the stack"),)
    if not keep_data:
        steps += removals(facts)
    state = f"{stack.status}, {len(stack.resources)} resources" if stack else "there is none"
    rows = [
        ("account", facts.account or "never looked up"),
        ("stack", state if facts.account else "never looked up"),
    ]
    if stack is not None and stack.has_roles:
        warnings += ("the roles are the account's: launches from other regions use them, too.",)
    price = (("afterwards", "what is kept costs as before" if keep_data else "nothing"),)
    return Plan(f"stack {STACK} in {facts.region}, down", tuple(rows), steps, price, warnings, facts.problems)


def goes(stack: Stack, keep_data: bool) -> list[tuple[str, str, str]]:
    """A row per resource: what happens to it, its name and its id."""
    kept = "keep" if keep_data else "delete if empty"
    return [
        (kept if name in (*KEPT, *WITH_THEM) else "delete", name, thing)
        for name, thing in sorted(stack.resources.items())
    ]


def removals(facts: Facts) -> tuple[Request, ...]:
    """What deletes what the stack leaves; AWS itself refuses where something is in it, but for logs.

    Only what is the stack's now: what merely has the name may be somebody else's.
    """
    there = [name for name in KEPT if facts.stack and name in facts.stack.resources]
    asks = {
        "JobBucket": ("s3", "DeleteBucket", {"Bucket": bucket_of(facts.account or SOME_ACCOUNT, facts.region)}),
        "Repository": ("ecr", "DeleteRepository", {"repositoryName": "aws-ddp-toolkit"}),
        "NodeLogs": ("logs", "DeleteLogGroup", {"logGroupName": "/aws-ddp-toolkit/ec2"}),
    }
    words = {"JobBucket": "delete the bucket, which is empty", "Repository": "delete the repository, which is empty",
             "NodeLogs": "delete the log group, unless it holds logs"}  # fmt: skip
    gone = ("NoSuchBucket", "404", "RepositoryNotFoundException", "ResourceNotFoundException")
    return tuple(Request(*asks[name], words[name], gone, name=name) for name in there)
