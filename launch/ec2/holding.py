"""Which jobs hold something of the account, as launch.infra must not delete the roles of their nodes.  Reads only."""

from datetime import datetime

from launch.core.aws import Aws
from launch.ec2 import leaks
from launch.ec2.finding import find


def jobs(aws: Aws, now: datetime) -> tuple[str, ...]:
    """Those of a region, each with the command that stops it.  Raises TrainerError."""
    found = [finding.job for finding in leaks.judge(find(aws), aws.region, now)]
    return tuple(f"{job} in {aws.region} (python -m launch.ec2 stop {job} --region {aws.region})" for job in found)
