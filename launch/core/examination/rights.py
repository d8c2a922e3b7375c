"""Rights that jobs need, as IAM's simulation is asked about them: actions, resources and what is known of the request.

{ACCOUNT} and the like are filled in when it is asked; infra/iam grants all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from launch.core.names import JOB_TAG
from launch.core.sent import FOLDER as SOURCES

NAME = "doctor"  # the job's name in requests that are simulated


@dataclass(frozen=True)
class Right:
    """Actions on resources: each of the actions on each of the resources."""

    actions: Sequence[str]
    resources: Sequence[str]
    context: Mapping[str, str] = field(default_factory=dict)


ROLE = "arn:aws:iam::{ACCOUNT}:role/"
LOGS = "arn:aws:logs:{REGION}:{ACCOUNT}:log-group:"
FOLDER = "arn:aws:s3:::{BUCKET}/jobs/{JOB}/"
SOURCE = f"arn:aws:s3:::{{BUCKET}}/{SOURCES}/x"
TAGGED, CARRIES = ({f"aws:{what}/{JOB_TAG}": NAME} for what in ("RequestTag", "ResourceTag"))
OURS = {"s3:ResourceAccount": "{ACCOUNT}", "aws:PrincipalAccount": "{ACCOUNT}"}

# What every launcher does with a job's folder.
JOB_FOLDER = (
    Right(["s3:GetObject", "s3:PutObject"], [f"{FOLDER}job.json"], OURS),
    Right(["s3:ListBucket"], ["arn:aws:s3:::{BUCKET}"], OURS),
)

# What a job with a script of the user's own needs as well: its source is sent once, and every rank reads it.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes-enforce.html
READS_SOURCE = (Right(["s3:GetObject"], [SOURCE], OURS),)
SENDS_SOURCE = (Right(["s3:PutObject"], [SOURCE], {**OURS, "s3:if-none-match": "*"}), *READS_SOURCE)
