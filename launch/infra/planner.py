"""Options + facts -> the plan: its requests, what they cost, what prevents them.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, repeat
from typing import Any

from launch.aws.names import STACK_TAG, TOOLKIT, bucket_of, client_token
from launch.core.plan import Fact, Plan, Request
from launch.infra.lookup import Facts, Stack
from launch.infra.options import UP, SetUpOptions, parameters
from launch.infra.problems import problems_of
from launch.infra.queue import QueueFacts, name_of, problem_of, without_launcher
from launch.infra.queue import parameters as queue_parameters
from launch.infra.queue import shown as shown_queue
from launch.infra.template import (
    KEPT,
    NOTIFY_STACK,
    QUEUE_STACK,
    STACK,
    WITH_THEM,
    Resource,
    filled,
    filled_notify,
    filled_queue,
    keeping,
    left_out,
    left_out_text,
    rates,
    read,
    resources,
)

# Stands for the account in a plan without one.
SOME_ACCOUNT = "123456789012"
SPOT = "spot.amazonaws.com"
# https://docs.aws.amazon.com/sns/latest/dg/sns-email-notifications.html
CONFIRM = "AWS sends {to} a mail with a link to confirm; until it is opened, nothing else arrives."


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
    holds: tuple[Resource, ...]  # the resources of all stacks
    queue: tuple[Request, ...] = ()  # make and execute the change set of the queues' stack, or delete that stack
    notify: tuple[Request, ...] = ()  # the same, of the stack of --notify


def plan(options: SetUpOptions, facts: Facts, now: datetime, queues: QueueFacts | None = None) -> Plan[SetUp]:
    """The plan to create or change the account's stack, and those beside it."""
    queues = queues or QueueFacts()
    body = keeping(filled(facts.account or SOME_ACCOUNT, facts.region), facts.adopted)
    template, stack = read(body), facts.stack
    given = _given(options, facts)
    values = {**(stack.parameters if stack else {}), **given}
    holds = resources(template, values)
    (create, execute), budget = _change_set(STACK, body, given, facts, facts.stack, now), _set_budget(options, facts)
    log_days = values.get("LogDays", "30")
    queue = _queue(options, facts, queues, log_days, now)
    notify = _notify(options, facts, log_days, now)
    held = (*holds, *queue.holds, *notify.holds)
    setup = SetUp(create, execute, budget, _allow_spot(), held, queue.requests, notify.requests)
    problem = problem_of(queues)
    return Plan(
        title=f"stack {STACK} in {facts.region}",
        payload=setup,
        facts=(*_shown(options, facts), *queue.shown, *notify.shown),
        steps=(create, execute, *queue.requests, *notify.requests, *budget, setup.spot),
        rates=_rates(template, values, setup.holds),
        warnings=(*_warnings(facts, values), *queue.warnings, *notify.warnings),
        problems=(
            *facts.problems,
            *queues.problems,
            *problems_of(facts, template, values),
            *([problem] if problem else []),
        ),
    )


@dataclass(frozen=True)
class _Beside:
    """The part of another stack in the plan."""

    requests: tuple[Request, ...] = ()
    holds: tuple[Resource, ...] = ()
    shown: tuple[Fact, ...] = ()
    warnings: tuple[str, ...] = ()


def _queue(options: SetUpOptions, facts: Facts, queues: QueueFacts, log_days: str, now: datetime) -> _Beside:
    if not name_of(options, queues):
        if queues.stack is None:
            return _Beside()
        row = Fact("queue", None, f"{queues.name} is removed")
        return _Beside((_delete(QUEUE_STACK, queues.stack),), shown=(row,))
    body = filled_queue(facts.account or SOME_ACCOUNT)
    given = queue_parameters(options, queues, log_days)
    values = {**(queues.stack.parameters if queues.stack else {}), **given}
    warning = without_launcher(queues, values)
    return _Beside(
        _change_set(QUEUE_STACK, body, given, facts, queues.stack, now),
        resources(read(body), values),
        (shown_queue(values),),
        (warning,) if warning else (),
    )


def _notify(options: SetUpOptions, facts: Facts, log_days: str, now: datetime) -> _Beside:
    present = facts.messages
    before = present.parameters if present else {}
    if options.no_notify and present:
        return _Beside((_delete(NOTIFY_STACK, present),), shown=(Fact("notify", None, "nothing any more"),))
    if not (options.notify or present):
        return _Beside()
    given = {"LogDays": log_days, **_recipient(options.notify)}
    values, body = {**before, **given}, filled_notify(facts.account or SOME_ACCOUNT, facts.region)
    to = values["Mail"] or f"ssm:{values['Hook']}"
    row = Fact("notify", to, f"{to}, when a job ends, logs nothing for an hour, or has spent half of its time limit")
    is_new = values["Mail"] and values["Mail"] != before.get("Mail")
    warnings = (CONFIRM.format(to=to),) if is_new else ()
    requests = _change_set(NOTIFY_STACK, body, given, facts, present, now)
    return _Beside(requests, resources(read(body), values), (row,), warnings)


def _recipient(notify: str | None) -> dict[str, str]:
    """The stack's parameters for --notify."""
    if notify is None:
        return {}
    hook = notify.removeprefix("ssm:")
    return {"Mail": "", "Hook": hook} if hook != notify else {"Mail": notify, "Hook": ""}


def _delete(name: str, stack: Stack) -> Request:
    return Request("cloudformation", "DeleteStack", {"StackName": stack.id}, f"delete stack {name}", name=name)


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


def _change_set(
    stack: str, body: str, given: Mapping[str, str], facts: Facts, present: Stack | None, now: datetime
) -> tuple[Request, Request]:
    """The requests that make a change set of this stack, and execute it."""
    # The same name for a repeated request whose answer was lost, another for other parameters.
    name = f"infra-{now:%Y%m%d-%H%M%S}-{client_token(body, sorted(given.items()))[:8]}"
    params = {
        "StackName": stack,
        "ChangeSetName": name,
        "ChangeSetType": "UPDATE" if present else "CREATE",
        "TemplateBody": body,
        "Parameters": _slots(read(body), given, present),
        "Capabilities": ["CAPABILITY_NAMED_IAM"],
        "Tags": [{"Key": STACK_TAG, "Value": facts.region}],
        **_mode(facts.adopted if stack == STACK else (), present),
    }
    why = "ask AWS what would change" + ("" if stack == STACK else f" in stack {stack}")
    execute = {"StackName": stack, "ChangeSetName": name, "ClientRequestToken": name}
    return (
        Request("cloudformation", "CreateChangeSet", params, why, ("AlreadyExistsException",)),
        Request("cloudformation", "ExecuteChangeSet", execute, "make the changes"),
    )


def _slots(template: Mapping[str, Any], given: Mapping[str, str], stack: Stack | None) -> list[dict[str, Any]]:
    """New values, and for the stack's other parameters their present ones."""
    slots: list[dict[str, Any]] = [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
    for name in template["Parameters"]:
        if stack is not None and name in stack.parameters and name not in given:
            slots.append({"ParameterKey": name, "UsePreviousValue": True})
    return slots


def _mode(adopted: Sequence[str], present: Stack | None) -> dict[str, Any]:
    mode: dict[str, Any] = {}
    if adopted:
        mode["ImportExistingResources"] = True
    elif present is not None:
        mode["DeploymentMode"] = "REVERT_DRIFT"
    if present is None:
        mode["OnStackFailure"] = "DELETE"  # an empty stack would block the next try
    return mode


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


def down(facts: Facts, keep_data: bool, warnings: tuple[str, ...] = (), queues: Stack | None = None) -> Plan[None]:
    """The plan to delete the stack, after those beside it.  It must be unused and hold no data: see in_use.py."""
    stack = facts.stack
    beside = {QUEUE_STACK: queues, NOTIFY_STACK: facts.messages}
    steps = tuple(_delete(name, other) for name, other in beside.items() if other is not None)
    if stack is not None:
        steps += (Request("cloudformation", "DeleteStack", {"StackName": stack.id}, "delete the stack"),)
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
