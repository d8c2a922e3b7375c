"""EC2 as a backend: its description, its names of AWS resources, and what its commands need from outside."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from launch.aws.names import TOOLKIT
from launch.core.backend import Backend, Demand, Place, Values, single_type
from launch.core.clock import Clock
from launch.core.options import whole
from launch.core.terminal import Say, approve, confirm, may_detach, say
from launch.ec2.options import INSTANCE_TYPE, Ec2Options
from trainer.errors import SettingsError

if TYPE_CHECKING:
    from launch.aws.client import Aws
    from launch.ec2.ended import Ended


BACKEND_NAME = "ec2"

LOG_GROUP = f"/{TOOLKIT}/ec2"
DATA_DEVICE = "/dev/sdf"


def command(verb: str, job: str, region: str, *flags: str) -> str:
    """A command line for a job, for users to paste."""
    return " ".join(["python -m launch.ec2", verb, job, *flags, "--region", region])


def _connect(region: str | None) -> "Aws":
    from launch.aws.client import Aws

    return Aws(region)


@dataclass(frozen=True)
class Runtime:
    """AWS, time and the user."""

    make_aws: Callable[[str | None], "Aws"] = _connect  # by region, None for the configured one
    clock: Clock = field(default_factory=Clock)
    say: Say = say
    may_detach: Callable[[], bool] = may_detach  # after Ctrl-C: asks whether the job keeps running
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)  # the user's, for rehearsals
    confirm: Callable[[str], None] = confirm  # asks before resources are removed
    approve: Callable[[str], None] = approve  # asks before a job that costs money
    results: Path = Path("runs")  # the folder into which results are fetched
    ended: "Ended" = field(default_factory=dict)  # what is known of ended jobs, for a process that asks again
    has_successor: bool = False  # another launcher goes on if this one ends before the job


machine = partial(single_type, default=INSTANCE_TYPE)

# The default training; flags and --config override it.
DEFAULTS = {"dataset": "imagenet", "model": "resnet18", "batch_size": 256, "progress": False, "health_check": True}


def _place(demand: Demand) -> Place:
    """The smallest number of nodes of the type with that many GPUs."""
    options, gpus = demand.options, demand.gpus
    instance = machine(options)
    each = max(1, instance.gpus)
    if demand.strategy == "dp":
        if gpus not in (None, each):
            raise SettingsError(f"strategy dp uses all GPUs of one machine; {instance.name} has {each}, not {gpus}.")
        return Place({**options, "nodes": 1, "nproc_per_node": 1}, each)
    if gpus is None:
        return Place(options, whole(options, "nodes", 1) * whole(options, "nproc_per_node", each))
    if gpus <= each and "nodes" not in options:
        return Place({**options, "nodes": 1, "nproc_per_node": gpus}, gpus)
    if gpus % each or whole(options, "nodes", gpus // each) != gpus // each:
        raise SettingsError(
            f"gpus: {gpus} is not a whole number of {instance.name}, which has {each}; change one of them."
        )
    return Place({**options, "nodes": gpus // each}, gpus)


def _adopt(values: Values) -> Values:
    """A job file's settings: data in S3 are --data-s3 here."""
    adopted = dict(values)
    if str(adopted.get("data")).startswith("s3://"):
        adopted.setdefault("data_s3", adopted.pop("data"))
    return adopted


BACKEND = Backend(
    name="ec2",
    adopt=_adopt,
    about="EC2 instances, created for the job and removed after it",
    options=Ec2Options,
    place=_place,
    machine=machine,
    defaults=DEFAULTS,
    is_billed=True,
    examination="launch.ec2.examination",
    active_jobs="launch.ec2.leaks:active_jobs",
    returns_at_once=lambda where: where.queue is not None,
    batch="launch.ec2.batch:submit",
    rehearsal="launch.rehearse.ec2:opened",
)
