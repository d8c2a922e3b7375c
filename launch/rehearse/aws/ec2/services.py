"""Quotas and schedules, as in AWS where moto differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.servicequotas.exceptions import NoSuchResource

from launch.rehearse.aws.ec2.rules import Rules


def get_service_quota(rules: Rules, original: Any, backend: Any, service_code: str, quota_code: str) -> dict[str, Any]:
    if service_code != "ec2":
        return dict(original(backend, service_code, quota_code))
    if quota_code not in rules.quota:
        raise NoSuchResource
    return {"ServiceCode": "ec2", "QuotaCode": quota_code, "Value": rules.quota[quota_code]}


class _Conflict(JsonRESTError):
    code = 409


class _NotFound(JsonRESTError):
    code = 404


def create_schedule_group(rules: Rules, original: Any, backend: Any, name: str, tags: Any) -> Any:
    """Refuses a name that is in use: moto would replace the group by an empty one."""
    if name in backend.schedule_groups:
        raise _Conflict("ConflictException", f"Schedule group {name} already exists.")
    return original(backend, name, tags)


def in_a_group(place: str | int) -> Callable[..., Any]:
    """The method, after a check that the group exists.  place: of the group's name among the arguments."""

    def method(rules: Rules, original: Any, backend: Any, *args: Any, **named: Any) -> Any:
        given = args[place] if isinstance(place, int) else named.get(place)
        for name in [given] if isinstance(given, str) else given or []:
            if name not in backend.schedule_groups:
                raise _NotFound("ResourceNotFoundException", f"Schedule group {name} does not exist.")
        return original(backend, *args, **named)

    return method
