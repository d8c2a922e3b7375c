"""How the stack is, in words: what it holds, what it tells launchers, what was changed by hand."""

from dataclasses import replace

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.tables import table
from launch.infra.facts import Stack
from launch.infra.template import STACK

LOOK_EVERY_S, LIMIT_S = 3.0, 600.0

DRIFT = {
    "NOT_CHECKED": "not looked for; --drift does",
    "UNKNOWN": "not known",
    "IN_SYNC": "nothing, when it was last looked for",
    "DRIFTED": "something, when it was last looked for",
}


def stack_text(stack: Stack, region: str) -> str:
    """Everything about a stack."""
    shown = {name: value for name, value in stack.parameters.items() if value}
    return "\n".join(
        [
            f"stack {STACK} in {region}: {stack.status}",
            f"changed by hand: {DRIFT.get(stack.drift, stack.drift)}",
            "",
            table(("output", "value"), sorted(stack.outputs.items())),
            "",
            table(("parameter", "value"), sorted(shown.items())),
            "",
            table(("resource", "id"), sorted(stack.resources.items())),
        ]
    )


def detect_drift(aws: Aws, stack: Stack, clock: Clock) -> Stack:
    """The stack with what AWS finds now.  Raises AwsError."""
    asked = aws.call("cloudformation", "DetectStackDrift", {"StackName": stack.id})
    name = {"StackDriftDetectionId": asked["StackDriftDetectionId"]}
    until = clock.now() + LIMIT_S
    while True:
        found = aws.call("cloudformation", "DescribeStackDriftDetectionStatus", name)
        if found["DetectionStatus"] != "DETECTION_IN_PROGRESS":
            break
        if clock.now() > until:
            raise AwsError(f"AWS has not said what was changed after {LIMIT_S / 60:g} minutes; try again later.")
        clock.sleep(LOOK_EVERY_S)
    return replace(stack, drift=found.get("StackDriftStatus", "UNKNOWN"))


def drifted(aws: Aws, stack: Stack) -> list[tuple[str, str]]:
    """(name, how) of each resource that is not as the template says."""
    filters = {"StackName": stack.id, "StackResourceDriftStatusFilters": ["MODIFIED", "DELETED"]}
    rows = aws.pages("cloudformation", "DescribeStackResourceDrifts", "StackResourceDrifts", filters)
    return [
        (
            row["LogicalResourceId"],
            "deleted"
            if row["StackResourceDriftStatus"] == "DELETED"
            else ", ".join(difference["PropertyPath"] for difference in row.get("PropertyDifferences", ())),
        )
        for row in rows
    ]
