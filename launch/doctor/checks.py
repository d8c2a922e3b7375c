"""The table of checks, and run(), which makes them one after the other.

To add a check: a function that takes the case and yields verdicts, and a line here.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from launch.core.lookup import SET_UP
from launch.doctor import (
    account,
    data,
    dry_run,
    identity,
    image,
    machines,
    network,
    permissions,
    roles,
    time_limit,
    training_job,
)
from launch.doctor.case import Case
from launch.doctor.findings import Finding, Verdict, of_error
from trainer.errors import TrainerError

EC2, SAGEMAKER = "ec2", "sagemaker"
BOTH = (EC2, SAGEMAKER)


@dataclass(frozen=True)
class Check:
    """needed_by: the backends whose jobs need it; remedy: for whatever the check's look-up says is not there."""

    name: str
    needed_by: tuple[str, ...]
    run: Callable[[Case], Iterable[Verdict]]
    remedy: str = SET_UP


CHECKS = (
    Check("credentials", BOTH, identity.credentials),
    Check("clock", BOTH, identity.clock),
    Check("stack", BOTH, account.stack),
    Check("bucket", BOTH, account.bucket),
    Check("bucket's key", BOTH, account.keys),
    Check("node role", (EC2,), roles.node),
    Check("scheduler role", (EC2,), roles.scheduler),
    Check("job role", (SAGEMAKER,), roles.sagemaker),
    Check("spot role", (EC2,), roles.spot, roles.MAKE_SPOT_ROLE),
    Check("permissions", BOTH, permissions.of_launcher),
    Check("node's permissions", (EC2,), permissions.of_node),
    Check("job's permissions", (SAGEMAKER,), permissions.of_training_job),
    Check("quota", (EC2,), machines.quotas_of_ec2),
    Check("quota", (SAGEMAKER,), machines.quotas_of_sagemaker),
    Check("prices", (EC2,), machines.prices),
    Check("reservation", (EC2,), machines.reservation, "another --capacity-reservation or --capacity-block"),
    Check("subnets", (EC2,), network.subnets, network.DEFAULT_VPC),
    Check("way out", (EC2,), network.way_out),
    Check("public access", (EC2,), network.public_access),
    Check("offered", (EC2,), machines.offerings, machines.OTHER_PLACE),
    Check("AMI", (EC2,), machines.ami, "another --ami, or none"),
    Check("image", (EC2,), image.on_ec2, image.PUSH),
    Check("image", (SAGEMAKER,), image.on_sagemaker, f"{image.PUSH} --target sagemaker"),
    Check("snapshot", (EC2,), data.snapshot, data.PUBLISH),
    Check("snapshot's key", (EC2,), data.snapshots_key),
    Check("file system", (EC2,), data.file_system, data.PUBLISH),
    Check("data in S3", (EC2,), data.in_s3),
    Check("VPC", (SAGEMAKER,), training_job.vpc, training_job.OWN_NETWORK),
    Check("data channels", (SAGEMAKER,), training_job.channels, "another --data"),
    Check("volumes' key", (EC2,), data.default_key),
    Check("dry run", (EC2,), dry_run.dry_run),
    Check("log group", (EC2,), account.log_group),
    Check("schedule group", (EC2,), account.schedule_group),
    Check("time limits' role", (EC2,), time_limit.role),
    Check("time limits", (EC2,), time_limit.document),
    Check("sweeper", (EC2,), account.sweeper),
    Check("budget", BOTH, account.budget),
    Check("leftovers", (EC2,), account.left_on_ec2),
    Check("leftovers", (SAGEMAKER,), account.left_on_sagemaker),
)


def run(case: Case) -> Iterator[Finding]:
    """The findings of the checks that the case's backend needs.  Raises nothing of AWS's."""
    for check in CHECKS:
        if case.backend in check.needed_by:
            yield from (Finding(check.name, verdict) for verdict in _verdicts(check, case))


def _verdicts(check: Check, case: Case) -> Iterator[Verdict]:
    try:
        yield from check.run(case)
    except TrainerError as error:
        yield of_error(error, check.remedy)
