"""Which training jobs cost money now, as launch.infra must not delete their role.  Reads only."""

from datetime import datetime

from launch.aws.client import Aws
from launch.sagemaker import training_jobs
from launch.sagemaker.names import command
from launch.sagemaker.training_job import TrainingJob


def jobs(aws: Aws, now: datetime) -> tuple[str, ...]:
    """Those of a region, each with the command that stops it.  Raises TrainerError."""
    return tuple(f"{one.name} in {aws.region} ({_remedy(one)})" for one in training_jobs.costing(aws, now))


def _remedy(training_job: TrainingJob) -> str:
    """No command of what `stop` does not touch: whoever starts a training job may give it any tags."""
    if not training_job.is_ours:
        return "its tags are not the toolkit's: end it by hand"
    return command("stop", training_job.job, training_job.region)
