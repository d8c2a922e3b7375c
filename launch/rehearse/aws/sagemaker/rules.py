"""What the embedded SageMaker has and allows."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.core.utils import get_service_model

from launch.rehearse.aws.access import Access
from launch.rehearse.aws.sagemaker.plans import TrainingPlan

ON_DEMAND, SPOT, WARM = "training job usage", "spot training job usage", "training warm pool usage"
DEFAULT_QUOTA = 20.0


@dataclass
class Slow:
    """For how many answers of DescribeTrainingJob a job stays Stopping; None: until stopped() is called."""

    stopping: int | None = 1


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
    """What AWS allows.  quota: instances by the quota's name; capacity: instances by type (default: unlimited).

    refuses_missing_data: CreateTrainingJob checks input data, as it has been seen to; otherwise the job fails later.
    stop_s: what a job that is to end has between SIGTERM and SIGKILL, by the clock of its hosts; one that has saved and
    left ends earlier: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StopTrainingJob.html
    unlisted: names of jobs that listings do not show yet; roles: ARNs that SageMaker may assume, beside the account's.
    plans: the account's training plans by their ARNs; file_systems: the folders here of (FileSystemId, DirectoryPath).
    """

    quota: dict[str, float] = field(default_factory=_quotas)
    capacity: dict[str, int] = field(default_factory=dict)
    slow: Slow = field(default_factory=Slow)
    refuses_missing_data: bool = False
    stop_s: float = 120.0
    unlisted: set[str] = field(default_factory=set)
    roles: set[str] = field(default_factory=set)
    plans: dict[str, TrainingPlan] = field(default_factory=dict)
    file_systems: dict[tuple[str, str], Path] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    lock: Any = field(default_factory=threading.RLock)  # of everything that is under these rules


@functools.cache
def _model() -> Any:
    return get_service_model("sagemaker")


def operation_input(name: str) -> Any:
    """The input shape of an operation of SageMaker, from AWS's own model."""
    return _model().operation_model(name).input_shape


def instance_types() -> list[str]:
    """Every instance type that SageMaker trains on."""
    return list(_model().shape_for("TrainingInstanceType").enum)
