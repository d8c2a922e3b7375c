"""What AWS says would change: a change set, made to be read, and either carried out or deleted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.plan import Request
from launch.core.tables import table
from launch.infra.lookup import stack_of
from launch.infra.template import KEPT, STACK, WITH_THEM

LOOK_EVERY_S, LIMIT_S = 2.0, 600.0
# How CloudFormation says that all is as it shall be.
NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


@dataclass(frozen=True)
class Change:
    """action: create, change, replace, delete, keep or adopt."""

    action: str
    id: str
    kind: str
    what: str


def ask(aws: Aws, create: Request, clock: Clock) -> tuple[Change, ...] | None:
    """What `create` would change, or None: nothing at all.  The change set is still there afterwards.

    Raises AwsError if AWS refuses.
    """
    try:
        aws.call(create.service, create.operation, create.params)
    except AwsError as error:
        if any(words in str(error) for words in NO_CHANGES):
            return None
        if error.aws_code not in create.done_already:
            raise
    name = {"StackName": STACK, "ChangeSetName": create.params["ChangeSetName"]}
    until = clock.now() + LIMIT_S
    while True:
        found = aws.call("cloudformation", "DescribeChangeSet", name)
        if found["Status"] not in ("CREATE_PENDING", "CREATE_IN_PROGRESS"):
            break
        if clock.now() > until:
            raise AwsError(f"AWS has not said what would change after {LIMIT_S / 60:g} minutes; try again later.")
        clock.sleep(LOOK_EVERY_S)
    reason = found.get("StatusReason", "")
    if found["Status"] == "FAILED":
        if any(words in reason for words in NO_CHANGES):
            return None
        raise AwsError(f"AWS would not do it: {reason.rstrip('. ')}.", "ChangeSetFailed")
    rows = list(found.get("Changes", ()))
    while "NextToken" in found:
        found = aws.call("cloudformation", "DescribeChangeSet", {**name, "NextToken": found["NextToken"]})
        rows += found.get("Changes", ())
    return tuple(_change(row["ResourceChange"]) for row in rows if "ResourceChange" in row)


def taken_away(changes: Sequence[Change]) -> list[str]:
    """What is deleted, or made anew in place of what is there."""
    return [change.id for change in changes if change.action in ("delete", "replace", "replace?")]


def forget(aws: Aws, create: Request) -> None:
    """Deletes the change set, if it is there, and the empty stack that AWS made for it if there was none."""
    name = {"StackName": STACK, "ChangeSetName": create.params["ChangeSetName"]}
    if create.params["ChangeSetType"] == "UPDATE":
        try:
            aws.call("cloudformation", "DeleteChangeSet", name)
        except AwsError as error:
            if error.aws_code not in ("ChangeSetNotFound", "ChangeSetNotFoundException"):
                raise
    elif stack_of(aws) is None:  # still only planned: with the stack goes the change set
        aws.call("cloudformation", "DeleteStack", {"StackName": STACK})


_ACTIONS = {"Add": "create", "Import": "adopt", "Remove": "delete", "SyncWithActual": "note"}


def _change(row: Mapping[str, Any]) -> Change:
    """As CloudFormation words it -> as we do.  Removed with the policy Retain is kept."""
    action = _ACTIONS.get(row["Action"], "change")
    if row.get("Replacement") in ("True", "Conditional") and action == "change":
        action = "replace" if row["Replacement"] == "True" else "replace?"
    if action == "delete" and (row.get("PolicyAction") == "Retain" or row["LogicalResourceId"] in (*KEPT, *WITH_THEM)):
        action = "keep"
    details = [detail.get("Target", {}) for detail in row.get("Details", ())]
    names = dict.fromkeys(str(target.get("Name") or target.get("Attribute", "")) for target in details)
    kind = " ".join(row["ResourceType"].split("::")[1:])
    what = ", ".join(name for name in names if name) or str(row.get("PhysicalResourceId", ""))
    return Change(action, row["LogicalResourceId"], kind, what)


def as_text(changes: Sequence[Change] | None) -> str:
    """A row per resource that changes."""
    if not changes:
        return "changes: none, all is as it shall be" if changes is None else "changes: of tags and outputs only"
    rows = [(change.action, change.id, change.kind, change.what) for change in changes]
    return "changes:\n" + table(("what", "name", "kind", "details"), rows)
