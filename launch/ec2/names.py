"""Names that only a job on EC2 leaves in the account.  launch/core/names.py has those of every job.

Pure.  infra/ec2/boot.sh and infra/iam know the same names.
"""

from launch.core.names import TOOLKIT

BACKEND = "ec2"
GENERATION_TAG = f"{TOOLKIT}:generation"  # on instances: how often the job was given nodes

LOG_GROUP = f"/{TOOLKIT}/ec2"
SCHEDULE_GROUP = TOOLKIT
DATA_DEVICE = "/dev/sdf"


def group_name(job: str) -> str:
    """Of the job's security group, placement group and schedule."""
    return f"{TOOLKIT}-{job}"


def node_streams(job: str) -> str:
    """What the names of the nodes' CloudWatch streams begin with; the rank follows."""
    return f"{job}/node-"
