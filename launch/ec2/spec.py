"""job.json back into a Job: what a second launcher needs to go on with what the first one started."""

from collections.abc import Mapping
from typing import Any, cast

from launch.ec2.options import Ec2Options
from launch.job import Job
from trainer import flags
from trainer.config import TrainConfig


def job_of(spec: Mapping[str, Any]) -> Job[Ec2Options]:
    """The job that `spec`, the content of job.json, describes.  Raises SettingsError if another version wrote it."""
    (where,) = flags.build({**spec["where"], "job_name": spec["job"], "region": spec["region"]}, [Ec2Options])
    (train,) = flags.parse(spec["train"], [TrainConfig], prog="job.json", about="", sections={})
    return Job(cast(TrainConfig, train), cast(Ec2Options, where))
