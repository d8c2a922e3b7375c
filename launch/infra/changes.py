"""Changes of the stack: change sets, events while AWS makes them, and drift from the template."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from launch.aws.client import Answer, Aws
from launch.aws.retry import Retry, is_transient
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.plan import Request
from launch.core.terminal import Say, table
from launch.infra.lookup import PLANNED, Stack, stack_of
from launch.infra.template import KEPT, STACK, WITH_THEM

# Time limit of a change set or a drift detection, and the polling interval.
LIMIT_S, CHANGE_SET_EVERY_S, DRIFT_EVERY_S = 600.0, 2.0, 3.0
# CloudFormation's messages for an empty change set.
NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


@dataclass(frozen=True)
class Change:
    """What happens to one resource."""

    action: str  # create, change, replace, replace? (may be), delete, keep, adopt or note
    id: str
    kind: str
    details: str


def named(create: Request) -> dict[str, str]:
    """The parameters that name the change set which `create` makes."""
    return {key: create.params[key] for key in ("StackName", "ChangeSetName")}


def preview(aws: Aws, create: Request, clock: Clock) -> tuple[Change, ...] | None:
    """The changes that `create` would make, or None if there are none.  Leaves the change set.

    Raises AwsError if AWS refuses.
    """
    try:
        aws.call(create.service, create.operation, create.params)
    except AwsError as error:
        if _is_empty(str(error)):
            return None
        if error.aws_code not in create.done_already:
            raise
    name = named(create)
    look = partial(aws.call, "cloudformation", "DescribeChangeSet", name)
    change_set = _poll(look, "Status", clock, CHANGE_SET_EVERY_S, "made the change set")
    if change_set["Status"] == "FAILED":
        reason = change_set.get("StatusReason", "")
        if _is_empty(reason):
            return None
        found = [_why(event) for event in invalid(aws, {"ChangeSetName": change_set["ChangeSetId"]}, reason)]
        raise AwsError(f"AWS refused the change set: {'; '.join(found) or reason.rstrip('. ')}.", "ChangeSetFailed")
    return tuple(_change(row["ResourceChange"]) for row in _rows(aws, name, change_set) if "ResourceChange" in row)


def _is_empty(reason: str) -> bool:
    return any(words in reason for words in NO_CHANGES)


def _poll(look: Callable[[], Answer], key: str, clock: Clock, every_s: float, what: str) -> Answer:
    """The answer of look() once its state, under `key`, is final.  Raises AwsError if AWS has not `what` in LIMIT_S."""
    deadline = clock.now() + LIMIT_S
    while True:
        answer = look()
        if not answer[key].endswith(("_PENDING", "_IN_PROGRESS")):
            return answer
        if clock.now() > deadline:
            raise AwsError(f"AWS has not {what} within {LIMIT_S / 60:g} minutes; try again later.")
        clock.sleep(every_s)


def _rows(aws: Aws, name: Mapping[str, str], first: Answer) -> list[Answer]:
    """The changes on all pages."""
    page, rows = first, list(first.get("Changes", ()))
    while "NextToken" in page:
        page = aws.call("cloudformation", "DescribeChangeSet", {**name, "NextToken": page["NextToken"]})
        rows += page.get("Changes", ())
    return rows


def lost(changes: Sequence[Change]) -> list[str]:
    """Resources that are deleted or replaced."""
    return [change.id for change in changes if change.action in ("delete", "replace", "replace?")]


def forget(aws: Aws, create: Request) -> None:
    """Deletes the change set, if it exists, and the empty stack that AWS makes for the first one."""
    name = named(create)
    if create.params["ChangeSetType"] == "UPDATE":
        try:
            aws.call("cloudformation", "DeleteChangeSet", name)
        except AwsError as error:
            if error.aws_code not in ("ChangeSetNotFound", "ChangeSetNotFoundException"):
                raise
    elif stack_of(aws, name["StackName"]) is None:  # still only planned: deleting it deletes its change set
        aws.call("cloudformation", "DeleteStack", {"StackName": name["StackName"]})


_ACTIONS = {"Add": "create", "Import": "adopt", "Remove": "delete", "SyncWithActual": "note"}


def _change(row: Mapping[str, Any]) -> Change:
    kind = " ".join(row["ResourceType"].split("::")[1:])
    details = _details(row) or str(row.get("PhysicalResourceId", ""))
    return Change(_action(row), row["LogicalResourceId"], kind, details)


def _action(row: Mapping[str, Any]) -> str:
    """CloudFormation's action in plain words."""
    action = _ACTIONS.get(row["Action"], "change")
    if action == "change":
        return {"True": "replace", "Conditional": "replace?"}.get(row.get("Replacement", ""), action)
    if action == "delete":
        is_kept = row.get("PolicyAction") == "Retain" or row["LogicalResourceId"] in (*KEPT, *WITH_THEM)
        return "keep" if is_kept else action
    return action


def _details(row: Mapping[str, Any]) -> str:
    """Names of the changed properties, each once."""
    names = dict[str, None]()
    for detail in row.get("Details", ()):
        target = detail.get("Target", {})
        names[str(target.get("Name") or target.get("Attribute", ""))] = None
    return ", ".join(name for name in names if name)


def as_text(changes: Sequence[Change] | None) -> str:
    """A row per resource that changes."""
    if changes is None:
        return "no changes: the stack is up to date"
    if not changes:
        return "changes: tags and outputs only"
    rows = [(change.action, change.id, change.kind, change.details) for change in changes]
    return "changes:\n" + table(("action", "name", "kind", "details"), rows)


# ---- events

Event = Mapping[str, Any]

FOLLOW_EVERY_S, FOLLOW_LIMIT_S = 5.0, 3600.0
# How long to retry while AWS is unreachable, and how long it may take to report the first event.
RETRY_S, SILENCE_S = 120.0, 30.0

GOOD = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE", "DELETE_COMPLETE")

# CloudFormation's reason for the first failure -> what to do.
_REMEDIES = (
    (r"already exists|AlreadyExists|has been taken", "it was created outside the stack: delete it, or rename yours"),
    (r"not authorized|AccessDenied|UnauthorizedOperation", "ask for the policy in infra/iam/administrator-stack.json"),
    (r"[Ll]imit|[Qq]uota", "ask for more under Service Quotas"),
    (r"attached|[Dd]etach|DeleteConflict", "detach it; python -m launch.infra down prints the commands"),
    (r"not empty|contains images", "empty it first"),
)


def follow(aws: Aws, stack: str, known: set[str], clock: Clock, say: Say) -> None:
    """Prints each new event of the stack with this ARN until AWS is done.  Raises AwsError if it failed.

    known: ids of earlier events; new ones are added.  A final state without a new event may be the earlier one, which
    AWS has yet to leave, so it counts only after SILENCE_S.
    """
    events = list[Event]()
    retry, started = Retry(clock, RETRY_S, is_transient), clock.now()
    while True:
        try:
            status = _status(aws, stack)
            events += _show_new(aws, stack, known, say)
            retry.success()
        except AwsError as error:
            retry.failure(error)
            status = ""
        waited = clock.now() - started
        if _is_final(status) and (events or waited > SILENCE_S):
            return _check(aws, events, status, stack)
        if waited > FOLLOW_LIMIT_S:
            raise AwsError(f"AWS is still busy after an hour; see python -m launch.infra show ({stack}).")
        clock.sleep(FOLLOW_EVERY_S)


def _is_final(status: str) -> bool:
    return bool(status) and not status.endswith("_IN_PROGRESS")


def _show_new(aws: Aws, stack: str, known: set[str], say: Say) -> list[Event]:
    """Prints the events that are not `known`, adds them to it and returns them."""
    events = events_of(aws, stack, known)
    for event in events:
        known.add(event["EventId"])
        if event["ResourceStatus"] != PLANNED:
            say(_line(event))
    return events


def events_of(aws: Aws, stack: str, known: set[str]) -> list[Event]:
    """The stack's events that are not `known`, oldest first.  Reads pages, newest first, until one is known."""
    events, token = list[Event](), dict[str, str]()
    while True:
        page = aws.call("cloudformation", "DescribeStackEvents", {"StackName": stack, **token})
        new = [event for event in page["StackEvents"] if event["EventId"] not in known]
        events += new
        if "NextToken" not in page or len(new) < len(page["StackEvents"]):
            return events[::-1]
        token = {"NextToken": page["NextToken"]}


def _status(aws: Aws, stack: str) -> str:
    (row,) = aws.call("cloudformation", "DescribeStacks", {"StackName": stack})["Stacks"]
    return str(row["StackStatus"])


def _line(event: Event) -> str:
    status, name = event["ResourceStatus"], event.get("LogicalResourceId") or STACK
    reason = event.get("ResourceStatusReason", "") if status.endswith("FAILED") else ""
    return f"  {status:<20} {name}" + (f": {reason}" if reason else "")


def invalid(aws: Aws, where: Mapping[str, str], reason: str) -> list[Event]:
    """What CloudFormation found wrong before it changed anything, as events of the resources.

    The stack's own events and a change set's reason only point at DescribeEvents:
    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/validate-stack-deployments.html
    """
    if "DescribeEvents" not in reason:
        return []
    try:
        query = {**where, "Filters": {"FailedEvents": True}}
        rows = list(aws.pages("cloudformation", "DescribeEvents", "OperationEvents", query))
    except AwsError:  # such as credentials with an earlier policy of ours: AWS's reason has to do
        return []
    return [
        {**row, "ResourceStatus": "VALIDATION_FAILED", "ResourceStatusReason": row.get("ValidationStatusReason", "")}
        for row in rows
        if row.get("EventType") == "VALIDATION_ERROR" and row.get("ValidationFailureMode") != "WARN"
    ]


def _check(aws: Aws, events: Sequence[Event], status: str, stack: str) -> None:
    """Raise AwsError unless the operation succeeded."""
    states = [event["ResourceStatus"] for event in events if event.get("PhysicalResourceId") == stack]
    failed = any("ROLLBACK" in state or state == "CREATE_FAILED" for state in states)
    # A new stack that was rolled back ends in DELETE_COMPLETE, too.
    if status not in GOOD or (status == "DELETE_COMPLETE" and failed):
        reasons = " ".join(event.get("ResourceStatusReason", "") for event in events)
        raise failure([*invalid(aws, {"StackName": stack}, reasons), *events], status)


def failure(events: Sequence[Event], status: str) -> AwsError:
    """The error that names what failed first, why, and what to do.  Pure."""
    is_undone = status.endswith(("ROLLBACK_COMPLETE", "DELETE_COMPLETE"))
    state = "AWS has rolled everything back" if is_undone else f"the stack is in {status}"
    first = next((event for event in events if _is_cause(event)), None)
    if first is None:
        return AwsError(
            f"the change failed, and no event gives a reason; {state}. See python -m launch.infra show.", status
        )
    why = _why(first)
    remedy = next((words for pattern, words in _REMEDIES if re.search(pattern, why)), "fix that")
    return AwsError(f"{why}; {state}; {remedy}, and run the same command again.", status)


def _why(event: Event) -> str:
    """What failed, and AWS's reason."""
    reason = " ".join(event.get("ResourceStatusReason", "no reason given").split()).rstrip(". ")
    reason = re.sub(r"\s*\((?:RequestToken|Service)[^)]*\)", "", reason)
    kind = " ".join(str(event.get("ResourceType", "")).split("::")[1:])
    return f"{event.get('LogicalResourceId', STACK)} ({kind}) failed: {reason}"


def _is_cause(event: Event) -> bool:
    """Whether a resource failed on its own: others are cancelled, and the stack fails, because of it."""
    return (
        event["ResourceStatus"].endswith("_FAILED")
        and "cancelled" not in event.get("ResourceStatusReason", "")
        and event.get("ResourceType") != "AWS::CloudFormation::Stack"
    )


# ---- drift


def detect_drift(aws: Aws, stack: Stack, clock: Clock) -> Stack:
    """The stack with its drift as of now.  Raises AwsError."""
    detection = aws.call("cloudformation", "DetectStackDrift", {"StackName": stack.id})
    query = {"StackDriftDetectionId": detection["StackDriftDetectionId"]}
    look = partial(aws.call, "cloudformation", "DescribeStackDriftDetectionStatus", query)
    state = _poll(look, "DetectionStatus", clock, DRIFT_EVERY_S, "detected drift")
    return replace(stack, drift=state.get("StackDriftStatus", "UNKNOWN"))


def drifted(aws: Aws, stack: Stack) -> list[tuple[str, str]]:
    """(name, difference) of each resource that differs from the template."""
    query = {"StackName": stack.id, "StackResourceDriftStatusFilters": ["MODIFIED", "DELETED"]}
    rows = aws.pages("cloudformation", "DescribeStackResourceDrifts", "StackResourceDrifts", query)
    return [(row["LogicalResourceId"], _difference(row)) for row in rows]


def _difference(row: Mapping[str, Any]) -> str:
    if row["StackResourceDriftStatus"] == "DELETED":
        return "deleted"
    return ", ".join(difference["PropertyPath"] for difference in row.get("PropertyDifferences", ()))
