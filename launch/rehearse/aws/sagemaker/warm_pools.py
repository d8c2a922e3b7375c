"""The warm pools that training jobs may leave, and use.

https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html
"""

from __future__ import annotations

from typing import Any


def keep(job: Any) -> None:
    """Keeps the instances as a warm pool, also after a failure of the job or its user, but not of AWS."""
    if "WarmPoolStatus" not in job.described:
        return
    of_aws = job.status == "Failed" and not job.described["FailureReason"].startswith(("AlgorithmError", "ClientError"))
    is_kept = job.kept_s and "TrainingEndTime" in job.described and not of_aws
    job.described["WarmPoolStatus"] = {
        "Status": "Available" if is_kept else "Terminated",
        "ResourceRetainedBillableTimeInSeconds": 0,
    }


def cool(job: Any) -> None:
    """Brings the warm pool's state up to date."""
    pool = job.described.get("WarmPoolStatus", {})
    if pool.get("Status") != "Available":
        return
    idle_s = (job.rules.now() - job.described["TrainingEndTime"]).total_seconds()
    pool["ResourceRetainedBillableTimeInSeconds"] = int(min(idle_s, job.kept_s))
    if idle_s >= job.kept_s:
        pool["Status"] = "Terminated"


def pool_key(job: Any) -> Any:
    """The properties that jobs must share to use each other's warm pools."""
    machines = job.request["ResourceConfig"]
    parts = [machines.get(key) for key in ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")]
    flags = [job.described[f"Enable{what}"] for what in ("NetworkIsolation", "InterContainerTrafficEncryption")]
    return job.request["RoleArn"], job.request.get("VpcConfig"), parts, flags, job.is_spot


def reuse(job: Any) -> None:
    """Takes the warm pool of an earlier job like this one, if there is any."""
    for other in job.others:
        if other.pool == "Available" and pool_key(other) == pool_key(job):
            other.described["WarmPoolStatus"] |= {"Status": "Reused", "ReusedByJob": job.name}
            job.described["WarmPoolStatus"] = {"Status": "InUse"}
            return
