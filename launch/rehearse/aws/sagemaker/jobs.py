"""A training job as SageMaker's answers show it, and its warm pool; changes.py has its changes of state.

Messages marked [?] are not known to be AWS's own.
"""

from __future__ import annotations

import json
from typing import Any

from launch.rehearse.aws.sagemaker.rules import Rules, plans_of

MESSAGES = {
    "Starting": "Starting the training job",
    "Prepared": "Preparing the instances for training",
    "No capacity": "Insufficient capacity error from EC2 while launching instances, retrying!",
    "Pending": "Waiting for capacity",  # [?]
    "Downloading": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",  # [?]
    "Interrupted": "Training job interrupted: Spot capacity was reclaimed",  # [?]
    "Restarting": "Restarting the training job after an InternalServerError",  # [?]
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",  # [?]
    "MaxWaitTimeExceeded": "Training job wait time exceeded MaxWaitTimeInSeconds provided",  # [?]
}
INSTANCE_DIED = "InternalServerError: We encountered an internal error. Please try again."
NO_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)


DEFAULT_RUN_S = 86_400
ENDED = ("Completed", "Failed", "Stopped")
WITHOUT_INSTANCES = ("Interrupted", "Restarting")  # while InProgress, until it has instances again


class TrainingJob:
    """A job as DescribeTrainingJob shows it: `described`, in AWS's own names.  request: CreateTrainingJob's."""

    def __init__(self, rules: Rules, arn: str, request: dict[str, Any], jobs: dict[str, Any]) -> None:
        """jobs: all jobs of its region, by name."""
        self.rules, self.arn, self.request, self._jobs = rules, arn, request, jobs
        self.tags = list(request.get("Tags", []))
        self.shown_for = 0  # how many more answers show it as Stopping
        now = rules.now()
        self.described: dict[str, Any] = {
            "EnableNetworkIsolation": False,
            "EnableInterContainerTrafficEncryption": False,
            "EnableManagedSpotTraining": False,
            **json.loads(json.dumps({key: value for key, value in request.items() if key != "Tags"})),
            "TrainingJobArn": arn,
            "TrainingJobStatus": "InProgress",
            "CreationTime": now,
            "SecondaryStatusTransitions": [],
        }
        self.described["StoppingCondition"].setdefault("MaxRuntimeInSeconds", DEFAULT_RUN_S)
        if self.kept_s:
            self.described["WarmPoolStatus"] = {"Status": "InUse"}
        set_status(self, "Starting")

    @property
    def name(self) -> str:
        return str(self.request["TrainingJobName"])

    @property
    def status(self) -> str:
        return str(self.described["TrainingJobStatus"])

    @property
    def secondary(self) -> str:
        return str(self.described["SecondaryStatus"])

    @property
    def instance_type(self) -> str:
        """The selected type, or the first of the request."""
        machines = self.described["ResourceConfig"]
        return str(machines.get("SelectedInstanceType") or self.instance_types[0])

    @property
    def instance_types(self) -> list[str]:
        """The types that it may run on, in the order in which they are tried.

        https://docs.aws.amazon.com/sagemaker/latest/dg/train-instance-preferences.html
        """
        machines = self.request["ResourceConfig"]
        preferred = [str(one["InstanceType"]) for one in machines.get("InstancePreferences", ())]
        return preferred or [str(machines.get("InstanceType", ""))]

    @property
    def count(self) -> int:
        return int(self.request["ResourceConfig"].get("InstanceCount", 1))

    @property
    def plans(self) -> dict[str, str]:
        """The ARN of the training plan of each type that has one."""
        return plans_of(self.request["ResourceConfig"])

    @property
    def is_reserved(self) -> bool:
        """Whether its capacity is that of a training plan."""
        return self.instance_type in self.plans

    @property
    def others(self) -> list[Any]:
        """The region's other jobs, oldest first."""
        return [job for job in list(self._jobs.values()) if job is not self]

    @property
    def is_spot(self) -> bool:
        return bool(self.described["EnableManagedSpotTraining"])

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def has_instances(self) -> bool:
        return not self.has_ended and self.secondary not in ("Starting", "Pending", *WITHOUT_INSTANCES)

    @property
    def kept_s(self) -> int:
        """How long its instances are kept after its end, in s."""
        return int(self.described["ResourceConfig"].get("KeepAlivePeriodInSeconds") or 0)

    @property
    def pool(self) -> str | None:
        """The current state of its warm pool; None without one."""
        cool(self)
        state = self.described.get("WarmPoolStatus")
        return None if state is None else str(state["Status"])

    @property
    def statuses(self) -> list[str]:
        """Every secondary status that it has had."""
        return [str(transition["Status"]) for transition in self.described["SecondaryStatusTransitions"]]

    @property
    def model(self) -> str:
        """The URI of its model."""
        return f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output/model.tar.gz"


def set_status(job: TrainingJob, status: str, primary: str = "") -> None:
    """Set a job's secondary status, and optionally its primary one."""
    now, passed = job.rules.now(), job.described["SecondaryStatusTransitions"]
    if passed:
        passed[-1]["EndTime"] = now
    passed.append({"Status": status, "StartTime": now, "StatusMessage": MESSAGES[status]})
    job.described |= {"SecondaryStatus": status, "LastModifiedTime": now}
    if primary:
        job.described["TrainingJobStatus"] = primary


def set_message(job: TrainingJob, message: str) -> None:
    """Set the message of the current status."""
    job.described["SecondaryStatusTransitions"][-1]["StatusMessage"] = message
    job.described["LastModifiedTime"] = job.rules.now()


# ---- warm pools: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html


def keep(job: Any) -> None:
    """Keep the instances as a warm pool, also after a failure of the job, but not after one of AWS."""
    if "WarmPoolStatus" not in job.described:
        return
    of_aws = job.status == "Failed" and not job.described["FailureReason"].startswith(("AlgorithmError", "ClientError"))
    is_kept = job.kept_s and "TrainingEndTime" in job.described and not of_aws
    job.described["WarmPoolStatus"] = {
        "Status": "Available" if is_kept else "Terminated",
        "ResourceRetainedBillableTimeInSeconds": 0,
    }


def cool(job: Any) -> None:
    """Bring the warm pool's state up to date."""
    pool = job.described.get("WarmPoolStatus", {})
    if pool.get("Status") != "Available":
        return
    idle_s = (job.rules.now() - job.described["TrainingEndTime"]).total_seconds()
    pool["ResourceRetainedBillableTimeInSeconds"] = int(min(idle_s, job.kept_s))
    if idle_s >= job.kept_s:
        pool["Status"] = "Terminated"


def pool_key(job: Any) -> Any:
    """The properties that jobs must share to reuse a warm pool."""
    machines = job.request["ResourceConfig"]
    parts = [machines.get(key) for key in ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")]
    flags = [job.described[f"Enable{what}"] for what in ("NetworkIsolation", "InterContainerTrafficEncryption")]
    return job.request["RoleArn"], job.request.get("VpcConfig"), parts, flags, job.is_spot


def reuse(job: Any) -> None:
    """Take the warm pool of an earlier job like this one, if there is any."""
    for other in job.others:
        if other.pool == "Available" and pool_key(other) == pool_key(job):
            other.described["WarmPoolStatus"] |= {"Status": "Reused", "ReusedByJob": job.name}
            job.described["WarmPoolStatus"] = {"Status": "InUse"}
            return
