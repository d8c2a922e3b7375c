"""Names of AWS resources and tags of jobs on EC2; launch/aws/names.py has those of every backend.  Pure.

infra/ec2/boot.sh and infra/iam use the same names.
"""

from launch.aws.names import TOOLKIT

BACKEND_NAME = "ec2"

LOG_GROUP = f"/{TOOLKIT}/ec2"
DATA_DEVICE = "/dev/sdf"


def command(verb: str, job: str, region: str, *flags: str) -> str:
    """A command line for a job, for users to paste."""
    return " ".join(["python -m launch.ec2", verb, job, *flags, "--region", region])
