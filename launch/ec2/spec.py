"""Reads a Job back from its job.json, so that another launcher can continue it."""

from collections.abc import Mapping
from typing import Any, cast

from launch.core.aws import Aws
from launch.core.job import Job
from launch.core.training.written import training_from
from launch.ec2.fleet import Fleet
from launch.ec2.folders import folder_of, needed, refuse_unknown
from launch.ec2.names import BACKEND_NAME, command
from launch.ec2.options import Ec2Options
from launch.ec2.written import spec_of
from trainer.errors import SettingsError
from trainer.settings import flags


def job_named(aws: Aws, fleet: Fleet, name: str | None, bucket: str | None) -> Job[Ec2Options]:
    """The job that was started as `name`.  Raises SettingsError that names the running jobs.  fleet: of all jobs."""
    folder = folder_of(aws, fleet, needed(name, "attach", fleet), bucket)
    spec = spec_of(aws, folder, BACKEND_NAME)
    if spec is None:
        refuse_unknown(aws, fleet, folder)
    if "ended" in spec:
        raise SettingsError(f"job {folder.job} has ended; see {command('status', folder.job, aws.region)}")
    return job_of(spec)


def job_of(spec: Mapping[str, Any]) -> Job[Ec2Options]:
    """The job that job.json describes.  Raises SettingsError if an incompatible version wrote it, or somebody else."""
    if lacks := sorted({"job", "region", "train", "where"} - spec.keys()) or sorted({"nodes"} - spec["where"].keys()):
        raise SettingsError(f"job.json lacks {' and '.join(lacks)}, so no launcher wrote it.")
    own = {"job_name": spec["job"], "region": [spec["region"]], "max_nodes": spec["where"]["nodes"]}
    (where,) = flags.build({**spec["where"], **own}, [Ec2Options])
    # As the nodes have it: where they keep their runs is not the user's to say.
    train = training_from(spec["train"]).at(run_dir=None)
    return Job(train, cast(Ec2Options, where))
