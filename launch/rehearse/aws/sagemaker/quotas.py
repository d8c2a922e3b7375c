"""The account's quotas, as SageMaker applies them to a new training job.

https://docs.aws.amazon.com/general/latest/gr/sagemaker.html; the message is as users quote it.
"""

from __future__ import annotations

from collections import Counter

from moto.sagemaker.exceptions import SagemakerClientError

from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.rehearse.aws.sagemaker.rules import ACROSS_JOBS, LONGEST_RUN, ON_DEMAND, PER_JOB, SPOT, WARM
from launch.rehearse.aws.sagemaker.warm_pools import pool_key


def check_quota(job: TrainingJob) -> None:
    """Raises ResourceLimitExceeded for the first that the job would exceed."""
    _check_general_quotas(job)
    used = _used(job)
    for use in _uses(job):
        for kind in _counted(job):
            name = f"{kind} for {use}"
            _check_room(name, job.rules.quota.get(name, 0), used[name], job.count, "Instances")


def _uses(job: TrainingJob) -> list[str]:
    """The quotas of each type that the job counts against."""
    return [SPOT if job.is_spot else ON_DEMAND, *([WARM] if job.kept_s else [])]


def _counted(job: TrainingJob) -> list[str]:
    """Every type in the list, not only the selected one; capacity of a training plan has quotas of its own."""
    return [kind for kind in job.instance_types if kind not in job.plans]


def _used(job: TrainingJob) -> Counter[str]:
    """What the other jobs use, by the quota's name."""
    used = Counter[str]()
    for other in job.others:
        if not other.has_ended and not other.is_reserved:
            used[f"{other.instance_type} for {SPOT if other.is_spot else ON_DEMAND}"] += other.count
        if other.pool in ("InUse", "Available") and pool_key(other) != pool_key(job):
            used[f"{other.instance_type} for {WARM}"] += other.count
    return used


def _check_general_quotas(job: TrainingJob) -> None:
    """Those of the whole account; an account without a value has no such quota."""
    quota, market = job.rules.quota, "spot " if job.is_spot else ""
    run_s = job.described["StoppingCondition"]["MaxRuntimeInSeconds"]
    across = sum(other.count for other in job.others if not other.has_ended and other.is_spot == job.is_spot)
    for name, used, delta, unit in (
        (LONGEST_RUN, 0, run_s, "Seconds"),  # [?] the unit
        (PER_JOB.format(market), 0, job.count, "Instances"),
        (ACROSS_JOBS.format(market), across, job.count, "Instances"),
    ):
        if name in quota:
            _check_room(name, quota[name], used, delta, unit)


def _check_room(name: str, limit: float, used: int, delta: int, unit: str) -> None:
    if used + delta > limit:
        raise SagemakerClientError(
            "ResourceLimitExceeded",
            f"The account-level service limit '{name}' is {limit:.0f} {unit}, with current utilization of {used} "
            f"{unit} and a request delta of {delta} {unit}. Please use AWS Service Quotas to request an increase for "
            "this quota. If AWS Service Quotas is not available, contact AWS support to request an increase for this "
            "quota.",
        )
