"""job.json back into a Job: what a second launcher needs to go on with what the first one started."""

from collections.abc import Mapping
from typing import Any, cast

from launch.core.aws import Aws
from launch.core.job import Job
from launch.core.lookup import spec_of
from launch.ec2.fleet import find
from launch.ec2.folders import folder_of, needed, refuse_unknown
from launch.ec2.names import BACKEND
from launch.ec2.options import Ec2Options
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.settings import flags


def job_named(aws: Aws, name: str | None, bucket: str | None) -> Job[Ec2Options]:
    """The job that was started as `name`.  Raises SettingsError with those there are."""
    fleet = find(aws)
    folder = folder_of(aws, fleet, needed(name, "attach", fleet), bucket)
    spec = spec_of(aws, folder, BACKEND)
    if spec is None:
        refuse_unknown(aws, fleet, folder)
    if "ended" in spec:
        raise SettingsError(f"job {name} is over; see python -m launch.ec2 status {name}, or stop what is left of it.")
    return job_of(spec)


def job_of(spec: Mapping[str, Any]) -> Job[Ec2Options]:
    """The job that `spec`, the content of job.json, describes.  Raises SettingsError if another version wrote it."""
    own = {"job_name": spec["job"], "region": spec["region"], "max_nodes": spec["where"]["nodes"]}
    (where,) = flags.build({**spec["where"], **own}, [Ec2Options])
    (train,) = flags.parse(spec["train"], [TrainConfig], prog="job.json", about="", sections={})
    return Job(cast(TrainConfig, train), cast(Ec2Options, where))
