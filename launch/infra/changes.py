"""Change sets: what AWS says would change.  Each is made to be read, then carried out or deleted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.core.aws import Answer, Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.steps import Request
from launch.core.tables import table
from launch.infra.lookup import stack_of
from launch.infra.template import KEPT, STACK, WITH_THEM

LOOK_EVERY_S, LIMIT_S = 2.0, 600.0
# CloudFormation's words for an empty change set.
NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


@dataclass(frozen=True)
class Change:
    """action: create, change, replace, replace? (may be), delete, keep, adopt or note."""

    action: str
    id: str
    kind: str
    details: str


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
    name = {"StackName": STACK, "ChangeSetName": create.params["ChangeSetName"]}
    change_set = _wait(aws, name, clock)
    if change_set["Status"] == "FAILED":
        reason = change_set.get("StatusReason", "")
        if _is_empty(reason):
            return None
        raise AwsError(f"AWS refused the change set: {reason.rstrip('. ')}.", "ChangeSetFailed")
    return tuple(_change(row["ResourceChange"]) for row in _rows(aws, name, change_set) if "ResourceChange" in row)


def _is_empty(reason: str) -> bool:
    return any(words in reason for words in NO_CHANGES)


def _wait(aws: Aws, name: Mapping[str, str], clock: Clock) -> Answer:
    """The first page of the change set once AWS has made it."""
    deadline = clock.now() + LIMIT_S
    while True:
        change_set = aws.call("cloudformation", "DescribeChangeSet", name)
        if change_set["Status"] not in ("CREATE_PENDING", "CREATE_IN_PROGRESS"):
            return change_set
        if clock.now() > deadline:
            raise AwsError(f"AWS has not made the change set within {LIMIT_S / 60:g} minutes; try again later.")
        clock.sleep(LOOK_EVERY_S)


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
    name = {"StackName": STACK, "ChangeSetName": create.params["ChangeSetName"]}
    if create.params["ChangeSetType"] == "UPDATE":
        try:
            aws.call("cloudformation", "DeleteChangeSet", name)
        except AwsError as error:
            if error.aws_code not in ("ChangeSetNotFound", "ChangeSetNotFoundException"):
                raise
    elif stack_of(aws) is None:  # still only planned: deleting it deletes its change set
        aws.call("cloudformation", "DeleteStack", {"StackName": STACK})


_ACTIONS = {"Add": "create", "Import": "adopt", "Remove": "delete", "SyncWithActual": "note"}


def _change(row: Mapping[str, Any]) -> Change:
    kind = " ".join(row["ResourceType"].split("::")[1:])
    details = _details(row) or str(row.get("PhysicalResourceId", ""))
    return Change(_action(row), row["LogicalResourceId"], kind, details)


def _action(row: Mapping[str, Any]) -> str:
    """CloudFormation's action in our words."""
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
