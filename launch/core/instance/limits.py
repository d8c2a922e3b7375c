"""The time limit of machines on EC2, which works even if nothing of ours runs any more.  Pure."""

import json
from datetime import datetime, timedelta

from launch.core.names import SWEEPER_DOCUMENT, TOOLKIT
from launch.core.steps import Request

SCHEDULE_GROUP = TOOLKIT
GRACE = timedelta(minutes=5)
GRACE_MINUTES = "GraceMinutes"  # the parameter of the sweeper's document in infra/cloudformation/account.yaml


def time_limit(name: str, deadline: datetime, role: str, *, exists: bool) -> list[Request]:
    """The requests for a one-time schedule.  Made before anything is billed.

    It ends what is past the deadline in its tags, so it includes machines that are started later.  It names none: AWS
    lets a launcher write any target into a schedule, and the schedule's role must not be a way to end others' machines.
    """
    automation = {"DocumentName": SWEEPER_DOCUMENT, "Parameters": {GRACE_MINUTES: ["0"]}}
    schedule = {
        "Name": name,
        "GroupName": SCHEDULE_GROUP,
        # Later than the machines' own timers.
        "ScheduleExpression": f"at({deadline + GRACE:%Y-%m-%dT%H:%M:%S})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution",
            "RoleArn": role,
            "Input": json.dumps(automation),
        },
    }
    group = Request(
        "scheduler",
        "CreateScheduleGroup",
        {"Name": SCHEDULE_GROUP, "Tags": [{"Key": SCHEDULE_GROUP, "Value": "time limits"}]},
        "create the schedule group",
        ("ConflictException",),
    )
    why = "terminate the nodes of the job at its time limit"
    if exists:
        return [Request("scheduler", "UpdateSchedule", schedule, why)]
    # The group has only just been created.
    not_yet = ("ResourceNotFoundException",)
    return [group, Request("scheduler", "CreateSchedule", schedule, why, ("ConflictException",), retry_after=not_yet)]
