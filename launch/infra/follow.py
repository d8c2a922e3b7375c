"""Follows CloudFormation while it changes a stack; explains a failure in one sentence."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.patience import Patience, may_pass
from launch.core.perform import Say
from launch.infra.facts import PLANNED
from launch.infra.template import STACK

Event = Mapping[str, Any]

LOOK_EVERY_S, LIMIT_S = 5.0, 3600.0
# How long AWS may be out of reach, and how long it may take to report the first event.
PATIENCE_S, SILENCE_S = 120.0, 30.0

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
    patience, started = Patience(clock, PATIENCE_S, may_pass), clock.now()
    while True:
        try:
            status = _status(aws, stack)
            events += _show_new(aws, stack, known, say)
            patience.success()
        except AwsError as error:
            patience.failure(error)
            status = ""
        waited = clock.now() - started
        if _is_final(status) and (events or waited > SILENCE_S):
            return _check(events, status, stack)
        if waited > LIMIT_S:
            raise AwsError(f"AWS is still busy after an hour; see python -m launch.infra show ({stack}).")
        clock.sleep(LOOK_EVERY_S)


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


def _check(events: Sequence[Event], status: str, stack: str) -> None:
    """Raises AwsError unless AWS did what it was asked to."""
    states = [event["ResourceStatus"] for event in events if event.get("PhysicalResourceId") == stack]
    failed = any("ROLLBACK" in state or state == "CREATE_FAILED" for state in states)
    # A new stack that was rolled back ends in DELETE_COMPLETE, too.
    if status not in GOOD or (status == "DELETE_COMPLETE" and failed):
        raise failure(events, status)


def failure(events: Sequence[Event], status: str) -> AwsError:
    """The error that names what failed first, why, and what to do.  Pure."""
    is_undone = status.endswith(("ROLLBACK_COMPLETE", "DELETE_COMPLETE"))
    state = "AWS has rolled everything back" if is_undone else f"the stack is in {status}"
    first = next((event for event in events if _is_cause(event)), None)
    if first is None:
        return AwsError(
            f"the change failed, and no event gives a reason; {state}. See python -m launch.infra show.", status
        )
    reason = " ".join(first.get("ResourceStatusReason", "no reason given").split()).rstrip(". ")
    reason = re.sub(r"\s*\((?:RequestToken|Service)[^)]*\)", "", reason)
    remedy = next((words for pattern, words in _REMEDIES if re.search(pattern, reason)), "fix that")
    kind = " ".join(str(first["ResourceType"]).split("::")[1:])
    return AwsError(
        f"{first['LogicalResourceId']} ({kind}) failed: {reason}; {state}; {remedy}, and run the same command again.",
        status,
    )


def _is_cause(event: Event) -> bool:
    """Whether a resource failed on its own: others are cancelled, and the stack fails, because of it."""
    return (
        event["ResourceStatus"].endswith("_FAILED")
        and "cancelled" not in event.get("ResourceStatusReason", "")
        and event.get("ResourceType") != "AWS::CloudFormation::Stack"
    )
