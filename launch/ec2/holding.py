"""Which jobs hold something of the account, as launch.infra must not delete the roles of their nodes.  Reads only."""

from datetime import datetime

from launch.core.aws import Aws
from launch.ec2 import leaks
from launch.ec2.finding import find
from launch.ec2.names import command
from trainer.errors import one_line


def jobs(aws: Aws, now: datetime) -> tuple[str, ...]:
    """Those of a region, each with the command that stops it.  Raises TrainerError."""
    found = [finding.job for finding in leaks.judge(find(aws), aws.region, now)]
    return tuple(f"{one_line(job, 100)} in {aws.region} ({_remedy(job, aws.region)})" for job in found)


def _remedy(job: str, region: str) -> str:
    """No command of what is no job's name: the reader pastes what is here."""
    return command("stop", job, region) if leaks.has_proper_name(job) else "no job's name: remove it by hand"
