"""The state of the stack as text: resources, outputs, drift."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.tables import table
from launch.infra.facts import Stack
from launch.infra.template import STACK

LOOK_EVERY_S, LIMIT_S = 3.0, 600.0

DRIFT = {
    "NOT_CHECKED": "not checked; --drift checks it",
    "UNKNOWN": "unknown",
    "IN_SYNC": "none when last checked",
    "DRIFTED": "found when last checked",
}


def stack_text(stack: Stack, region: str) -> str:
    """Everything about a stack."""
    parameters = {name: value for name, value in stack.parameters.items() if value}
    return "\n".join(
        [
            f"stack {STACK} in {region}: {stack.status}",
            f"drift: {DRIFT.get(stack.drift, stack.drift)}",
            "",
            table(("output", "value"), sorted(stack.outputs.items())),
            "",
            table(("parameter", "value"), sorted(parameters.items())),
            "",
            table(("resource", "id"), sorted(stack.resources.items())),
        ]
    )


def detect_drift(aws: Aws, stack: Stack, clock: Clock) -> Stack:
    """The stack with its drift as of now.  Raises AwsError."""
    detection = aws.call("cloudformation", "DetectStackDrift", {"StackName": stack.id})
    query = {"StackDriftDetectionId": detection["StackDriftDetectionId"]}
    deadline = clock.now() + LIMIT_S
    while True:
        state = aws.call("cloudformation", "DescribeStackDriftDetectionStatus", query)
        if state["DetectionStatus"] != "DETECTION_IN_PROGRESS":
            return replace(stack, drift=state.get("StackDriftStatus", "UNKNOWN"))
        if clock.now() > deadline:
            raise AwsError(f"AWS has not detected drift within {LIMIT_S / 60:g} minutes; try again later.")
        clock.sleep(LOOK_EVERY_S)


def drifted(aws: Aws, stack: Stack) -> list[tuple[str, str]]:
    """(name, difference) of each resource that differs from the template."""
    query = {"StackName": stack.id, "StackResourceDriftStatusFilters": ["MODIFIED", "DELETED"]}
    rows = aws.pages("cloudformation", "DescribeStackResourceDrifts", "StackResourceDrifts", query)
    return [(row["LogicalResourceId"], _difference(row)) for row in rows]


def _difference(row: Mapping[str, Any]) -> str:
    if row["StackResourceDriftStatus"] == "DELETED":
        return "deleted"
    return ", ".join(difference["PropertyPath"] for difference in row.get("PropertyDifferences", ()))
