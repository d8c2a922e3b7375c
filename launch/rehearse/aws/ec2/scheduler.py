"""EventBridge Scheduler where moto differs: it checks groups and roles, and runs what is due.

https://docs.aws.amazon.com/scheduler/latest/UserGuide/setting-up.html#setting-up-execution-role
https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html#one-time
https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-delete.html#one-time-auto-delete
"""

from __future__ import annotations

import json
import runpy
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import as_file, files
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends
from moto.scheduler.models import scheduler_backends

from launch.aws.names import SWEEPER_DOCUMENT, TOOLKIT
from launch.rehearse.aws.calls import Call, Check, Refusal, SignedCall
from launch.rehearse.aws.ec2.instances import USER_ASKED, end
from launch.rehearse.aws.iam.callers import Caller, view_of
from launch.rehearse.aws.iam.policies import Need, listed, policy

AUTOMATION = "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution"
SERVICE = "scheduler.amazonaws.com"


class _Conflict(JsonRESTError):
    code = 409


class _NotFound(JsonRESTError):
    code = 404


# ---- requests


def create_schedule_group(rules: Any, original: Any, backend: Any, name: str, tags: Any) -> Any:
    """Refuse a name that is in use: moto would replace the group by an empty one."""
    if name in backend.schedule_groups:
        raise _Conflict("ConflictException", f"Schedule group {name} already exists.")
    return original(backend, name, tags)


def list_schedules(rules: Any, original: Any, backend: Any, group_names: Any, *args: Any, **named: Any) -> Any:
    for name in listed(group_names or []):
        _check_group(backend, name)
    return original(backend, group_names, *args, **named)


def create_schedule(rules: Any, original: Any, backend: Any, **named: Any) -> Any:
    if named.get("group_name"):
        _check_group(backend, named["group_name"])
    if not _trusts(backend.account_id, named["target"]["RoleArn"]):
        raise JsonRESTError(
            "ValidationException",
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.",
        )
    return original(backend, **named)


def _check_group(backend: Any, name: str) -> None:
    if name not in backend.schedule_groups:
        raise _NotFound("ResourceNotFoundException", f"Schedule group {name} does not exist.")


def _trusts(account: str, arn: str) -> bool:
    """Whether the role is there, and lets the scheduler assume it."""
    for role in iam_backends[account]["aws"].roles.values():
        if role.arn == arn:
            statements = listed(json.loads(role.assume_role_policy_document).get("Statement", []))
            return any(SERVICE in listed(one.get("Principal", {}).get("Service", [])) for one in statements)
    return False


# ---- time


def check_of(rules: Any) -> Check:
    """A check that refuses nothing: before each request, it runs the schedules that are due."""

    def check(signed: SignedCall) -> Refusal | None:
        fire(rules, signed.account, signed.region)
        return None

    return check


def fire(rules: Any, account: str, region: str) -> None:
    """Run the one-time schedules that are due, and delete those that ask for it."""
    for group in scheduler_backends[account][region].schedule_groups.values():
        for schedule in list(group.schedules.values()):
            if not is_enabled(schedule) or due_at(schedule) > rules.now():
                continue
            _run(rules, account, region, schedule.target)
            if schedule.action_after_completion == "DELETE":
                del group.schedules[schedule.name]
            else:
                schedule.state = "DISABLED"  # it has no other time


def is_enabled(schedule: Any) -> bool:
    """An update that leaves the state out enables it; moto then keeps None.

    https://docs.aws.amazon.com/scheduler/latest/APIReference/API_UpdateSchedule.html: what is left out gets its
    default.
    """
    return bool(schedule.state in (None, "ENABLED"))


def due_at(schedule: Any) -> float:
    """When a one-time schedule is due; never, for others."""
    expression = schedule.schedule_expression
    if not expression.startswith("at("):
        return float("inf")
    return datetime.fromisoformat(expression[3:-1]).replace(tzinfo=UTC).timestamp()


def _run(rules: Any, account: str, region: str, target: dict[str, Any]) -> None:
    """Run the sweeper's document, which ends what is past its deadline, as far as the policies of both roles allow.

    Starting a document that names a role needs the right to pass that role:
    https://docs.aws.amazon.com/systems-manager/latest/userguide/automation-setup-iam.html
    """
    if target["Arn"] != AUTOMATION:
        return
    view, requested = view_of(account, region, {}, {}), json.loads(target["Input"])
    starter = Caller(target["RoleArn"], (policy("scheduler"),))
    document = view.arn("ssm", f"document/{requested['DocumentName']}")
    start = Need("ssm:StartAutomationExecution", document, {"aws:PrincipalAccount": account})
    role = f"arn:aws:iam::{account}:role/{TOOLKIT}-sweeper"
    pass_role = Need("iam:PassRole", role, {"iam:PassedToService": "ssm.amazonaws.com"})
    if requested["DocumentName"] != SWEEPER_DOCUMENT or not (starter.may(start) and starter.may(pass_role)):
        return
    grace = timedelta(minutes=int(requested.get("Parameters", {}).get("GraceMinutes", ["15"])[0]))
    nodes = {instance.id: instance for instance in ec2_backends[account][region].all_instances()}
    tagged = [{"InstanceId": name, "Tags": _tags(node)} for name, node in nodes.items()]
    late, _ = _script()["judge"](tagged, "InstanceId", datetime.fromtimestamp(rules.now(), UTC) - grace)
    sweeper = Caller(role, (policy("sweeper"),))
    for name in late:
        if not sweeper.lacks(Call("ec2", "TerminateInstances", {"InstanceIds": [name]}), view):
            end(rules, nodes[name], USER_ASKED)


@cache
def _script() -> dict[str, Any]:
    """The functions of the sweeper, which AWS runs."""
    with as_file(files("infra").joinpath("cloudformation/sweep.py")) as path:
        return runpy.run_path(str(path))


def _tags(instance: Any) -> list[dict[str, str]]:
    return [{"Key": tag["key"], "Value": tag["value"]} for tag in instance.get_tags()]
