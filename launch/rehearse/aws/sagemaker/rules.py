"""What the embedded SageMaker has and allows."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.core.utils import get_service_model

from launch.rehearse.aws.access import Access
from launch.rehearse.aws.batch.jobs import Batch

ON_DEMAND, SPOT, WARM = "training job usage", "spot training job usage", "training warm pool usage"
DEFAULT_QUOTA = 20.0


# ---- training plans: capacity that the account has bought, which jobs ask for by the plan's ARN
# https://docs.aws.amazon.com/sagemaker/latest/dg/training-plan-utilization-for-training-jobs.html
# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_InstancePreference.html


@dataclass
class TrainingPlan:
    """Capacity that the account has bought."""

    instance_type: str
    count: int  # instances
    is_active: bool = True  # otherwise it is scheduled, and its jobs wait


def plans_of(machines: Mapping[str, Any]) -> dict[str, str]:
    """The ARN of the plan of each type that is requested with one.  machines: ResourceConfig."""
    if "TrainingPlanArn" in machines:
        return {machines.get("InstanceType", ""): machines["TrainingPlanArn"]}
    preferred = machines.get("InstancePreferences", ())
    return {one["InstanceType"]: one["TrainingPlanArns"][0] for one in preferred if one.get("TrainingPlanArns")}


# ---- the account


# Of the whole account, by their names in Service Quotas; "spot " is put in for spot jobs.
LONGEST_RUN, LONGEST_RUN_S = "Longest run time for a training job", 432_000.0
PER_JOB, ACROSS_JOBS = (
    "Maximum number of instances per {}training job",
    "Number of instances across all {}training jobs",
)


def _quotas() -> dict[str, float]:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/feature-store-feature-processor-quotas.html has the first two.

    A new account has less of the rest: no GPUs, no warm pools, and 4 instances in all.
    """
    general = [name.format(market) for name in (PER_JOB, ACROSS_JOBS) for market in ("", "spot ")]
    return {
        LONGEST_RUN: LONGEST_RUN_S,
        **dict.fromkeys(general, DEFAULT_QUOTA),
        **{f"{kind} for {usage}": DEFAULT_QUOTA for kind in instance_types() for usage in (ON_DEMAND, SPOT, WARM)},
    }


@dataclass
class Rules:
    """What the embedded SageMaker has and allows."""

    quota: dict[str, float] = field(default_factory=_quotas)  # instances by the quota's name
    capacity: dict[str, int] = field(default_factory=dict)  # instances by type (default: unlimited)
    # For how many answers of DescribeTrainingJob a job stays Stopping; None: until stopped() is called.
    answers_stopping: int | None = 1
    # Whether CreateTrainingJob checks input data, as observed on AWS; otherwise the job fails later.
    refuses_missing_data: bool = False
    # Between SIGTERM and SIGKILL, by the clock of the hosts; a job that has saved and left ends earlier:
    # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StopTrainingJob.html
    stop_s: float = 120.0
    unlisted: set[str] = field(default_factory=set)  # jobs that listings do not show yet
    roles: set[str] = field(default_factory=set)  # ARNs that SageMaker may assume, besides the account's
    plans: dict[str, TrainingPlan] = field(default_factory=dict)  # by ARN
    # Folders here, by (FileSystemId, DirectoryPath).
    file_systems: dict[tuple[str, str], Path] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    batch: Batch = field(default_factory=Batch)  # queues in front of it
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    lock: Any = field(default_factory=threading.RLock)  # of everything that is under these rules

    def __post_init__(self) -> None:
        self.batch.now = lambda: self.now()  # which tests replace


@functools.cache
def _model() -> Any:
    return get_service_model("sagemaker")


def operation_input(name: str) -> Any:
    """The input shape of an operation of SageMaker, from AWS's own model."""
    return _model().operation_model(name).input_shape


def instance_types() -> list[str]:
    """Every instance type that SageMaker trains on."""
    return list(_model().shape_for("TrainingInstanceType").enum)
