"""Quotas, as in AWS where moto differs."""

from __future__ import annotations

from typing import Any

from moto.servicequotas.exceptions import NoSuchResource

from launch.rehearse.aws.ec2.rules import Rules


def get_service_quota(rules: Rules, original: Any, backend: Any, service_code: str, quota_code: str) -> dict[str, Any]:
    if service_code != "ec2":
        return dict(original(backend, service_code, quota_code))
    if quota_code not in rules.quota:
        raise NoSuchResource
    return {"ServiceCode": "ec2", "QuotaCode": quota_code, "Value": rules.quota[quota_code]}
