"""Follows CloudFormation at work, and says in one sentence why it failed."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError, NoAnswer
from launch.infra.facts import PLANNED
from launch.infra.template import STACK
from trainer.errors import TrainerError

Say = Callable[[str], None]
LOOK_EVERY_S, LIMIT_S = 5.0, 3600.0
# How long AWS may be out of reach meanwhile, and how long after it was asked for something it may say nothing of it.
PATIENCE_S, SILENCE_S = 120.0, 30.0

GOOD = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE", "DELETE_COMPLETE")

# What CloudFormation says of the first resource that failed -> what to do.
_REMEDIES = (
    (r"already exists|AlreadyExists|has been taken", "it was made in another way: delete it, or rename yours"),
    (r"not authorized|AccessDenied|UnauthorizedOperation", "ask for the policy in infra/iam/administrator-stack.json"),
    (r"[Ll]imit|[Qq]uota", "ask for more under Service Quotas"),
    (r"attached|[Dd]etach|DeleteConflict", "detach it from whoever has it, as python -m launch.infra down says"),
    (r"not empty|contains images", "empty it first"),
)


def follow(aws: Aws, stack: str, known: set[str], clock: Clock, say: Say) -> None:
    """Says each event of the stack with this ARN that is not among `known`, until AWS is done.  Raises AwsError if it
    failed.

    A state without any event may be that of before, which AWS has yet to leave: for a while it is not believed.
    """
    events, begun = list[Mapping[str, Any]](), clock.now()
    trouble_since: float | None = None
    while True:
        try:
            status = _status(aws, stack)
            for event in events_of(aws, stack, known):
                known.add(event["EventId"])
                events.append(event)
                if event["ResourceStatus"] != PLANNED:
                    say(_line(event))
            trouble_since = None
        except AwsError as error:
            trouble_since = clock.now() if trouble_since is None else trouble_since
            if not (isinstance(error, NoAnswer) or not error.aws_code) or clock.now() - trouble_since > PATIENCE_S:
                raise
            status = ""
        waited = clock.now() - begun
        if status and not status.endswith("_IN_PROGRESS") and (events or waited > SILENCE_S):
            break
        if waited > LIMIT_S:
            raise AwsError(f"AWS is still at it after an hour; see python -m launch.infra show ({stack}).")
        clock.sleep(LOOK_EVERY_S)
    ended = [event["ResourceStatus"] for event in events if event.get("PhysicalResourceId") == stack]
    # A stack that was taken back ends in DELETE_COMPLETE, too.
    rolled_back = status == "DELETE_COMPLETE" and any("ROLLBACK" in word or word == "CREATE_FAILED" for word in ended)
    if status not in GOOD or rolled_back:
        raise failure(events, status)


def events_of(aws: Aws, stack: str, known: set[str]) -> list[Mapping[str, Any]]:
    """The stack's events that are not among `known`, oldest first.  Only the newest pages: the rest is known."""
    found, token = list[Mapping[str, Any]](), dict[str, str]()
    while True:
        page = aws.call("cloudformation", "DescribeStackEvents", {"StackName": stack, **token})
        fresh = [event for event in page["StackEvents"] if event["EventId"] not in known]
        found += fresh
        if "NextToken" not in page or len(fresh) < len(page["StackEvents"]):
            return found[::-1]
        token = {"NextToken": page["NextToken"]}


def _status(aws: Aws, stack: str) -> str:
    (row,) = aws.call("cloudformation", "DescribeStacks", {"StackName": stack})["Stacks"]
    return str(row["StackStatus"])


def _line(event: Mapping[str, Any]) -> str:
    reason = event.get("ResourceStatusReason", "")
    name = event.get("LogicalResourceId") or STACK
    shown = f": {reason}" if reason and event["ResourceStatus"].endswith("FAILED") else ""
    return f"  {event['ResourceStatus']:<20} {name}{shown}"


def failure(events: Sequence[Mapping[str, Any]], status: str) -> TrainerError:
    """One sentence: what failed first, why, what to do.  Pure."""
    cancelled = "cancelled"  # of those that were under way when the first failed
    failed = [
        event
        for event in events
        if event["ResourceStatus"].endswith("_FAILED")
        and cancelled not in event.get("ResourceStatusReason", "")
        and event.get("ResourceType") != "AWS::CloudFormation::Stack"
    ]
    after = "AWS has taken everything back" if status.endswith(("ROLLBACK_COMPLETE", "DELETE_COMPLETE")) else (
        f"the stack is in {status}"
    )  # fmt: skip
    if not failed:
        return AwsError(f"it failed, and no event says why; {after}. See python -m launch.infra show.", status)
    first = failed[0]
    reason = " ".join(first.get("ResourceStatusReason", "no reason given").split()).rstrip(". ")
    reason = re.sub(r"\s*\((?:RequestToken|Service)[^)]*\)", "", reason)
    remedy = next((words for pattern, words in _REMEDIES if re.search(pattern, reason)), "mend that")
    kind = " ".join(str(first["ResourceType"]).split("::")[1:])
    return AwsError(
        f"{first['LogicalResourceId']} ({kind}) failed: {reason}; {after}; {remedy}, and start the same command again.",
        status,
    )
