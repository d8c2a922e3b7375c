"""Training plans: capacity that the account has bought, which jobs ask for by the plan's ARN.

https://docs.aws.amazon.com/sagemaker/latest/dg/training-plan-utilization-for-training-jobs.html,
https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_InstancePreference.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class TrainingPlan:
    """count: instances; is_active: its time has come, otherwise it is scheduled, and its jobs wait."""

    instance_type: str
    count: int
    is_active: bool = True


def plans_of(machines: Mapping[str, Any]) -> dict[str, str]:
    """The ARN of the plan of each type that is asked for with one.  machines: ResourceConfig."""
    if "TrainingPlanArn" in machines:
        return {machines.get("InstanceType", ""): machines["TrainingPlanArn"]}
    preferred = machines.get("InstancePreferences", ())
    return {one["InstanceType"]: one["TrainingPlanArns"][0] for one in preferred if one.get("TrainingPlanArns")}


def has_room(plan: TrainingPlan, needed: int) -> bool:
    """Whether so many instances of it may run."""
    return plan.is_active and needed <= plan.count
