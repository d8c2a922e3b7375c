"""Which training jobs cost money now, as launch.infra must not delete their role.  Reads only."""

from datetime import datetime

from launch.core.aws import Aws
from launch.sagemaker import training_jobs


def jobs(aws: Aws, now: datetime) -> tuple[str, ...]:
    """Those of a region, each with the command that stops it.  Raises TrainerError."""
    names = [job.name for job in training_jobs.costing(aws, now)]
    return tuple(f"{name} in {aws.region} (python -m launch.sagemaker stop --region {aws.region})" for name in names)
