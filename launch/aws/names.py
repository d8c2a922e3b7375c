"""Names in the account that jobs of every backend use: tags, and keys and addresses in S3.  Pure."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from launch.core.job import JOB_NAME
from trainer.contract import OUTCOME
from trainer.errors import SettingsError, did_you_mean

TOOLKIT = "aws-ddp-toolkit"
SWEEPER_DOCUMENT = "ddp-toolkit-sweeper"  # AWS reserves names that begin with aws
STACK_TAG = f"{TOOLKIT}:stack"  # on each resource of launch.infra's stack: its region
# On the role of time limits: the version of the stack's roles.  Since 2, this role starts the account's sweeper and
# nothing else; since 3, nodes and training jobs can read the shared sources; since 4, nodes can pull AWS's images.
SCHEDULER_ROLE, ROLES_TAG, ROLES_VERSION = f"{TOOLKIT}-scheduler", f"{TOOLKIT}:roles", 4
LIMITS_SINCE, SHARED_SINCE, PULLS_SINCE = 2, 3, 4  # of these three
JOB_TAG = f"{TOOLKIT}:job"
STARTED_TAG = f"{TOOLKIT}:started"  # UTC
DEADLINE_TAG = f"{TOOLKIT}:deadline"  # UTC: when the time limit ends the job; absent where AWS enforces it
OWNER_TAG = f"{TOOLKIT}:owner"  # aws:userid of the user who started the job; information only
BUCKET_TAG = f"{TOOLKIT}:bucket"  # holds the job's folder
HOURLY_TAG = f"{TOOLKIT}:usd-per-hour"  # on instances and training jobs: the price of a machine on demand
GENERATION_TAG = f"{TOOLKIT}:generation"  # on instances: counts the launches of nodes for the job
ONCE_TAG = f"{TOOLKIT}:usd-once"  # on instances: the cost of their start
DATA_TAG = f"{TOOLKIT}:dataset"  # on snapshots: the data set they hold
ALLOWED_TAG = f"{TOOLKIT}:allowed"  # on the user's own groups, AMIs and reservations: launchers may use them

# In AWS Batch.  A queue's scheduling policy and environment have its name.
QUEUES = f"{TOOLKIT}-"  # begins the names of queues
FOR_EC2 = "-ec2"  # ends those of queues for launch.ec2
SHARE = "default"  # of a job without --share
CONTROLLER = f"{TOOLKIT}-controller"  # the job definition of launch.ec2 --queue, and its role
CONTROLLER_LOGS = f"/{TOOLKIT}/controller"

TIME = "%Y-%m-%dT%H:%M:%SZ"
BUCKET_NAME = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
AMOUNT = r"\d{1,9}(\.\d{1,9})?(e[-+]\d\d)?"  # as :.6g writes it


@dataclass(frozen=True)
class Folder:
    """A job's folder in S3."""

    bucket: str
    job: str

    @property
    def prefix(self) -> str:
        return f"jobs/{self.job}/"

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/jobs/{self.job}"

    @property
    def spec(self) -> str:
        return self.prefix + "job.json"

    @property
    def queued(self) -> str:
        """What a controller starts, once its turn comes."""
        return self.prefix + "queued.json"

    @property
    def lease(self) -> str:
        """Which launcher leads the job."""
        return self.prefix + "lease.json"

    @property
    def cluster(self) -> str:
        return self.prefix + "cluster.json"

    @property
    def boot(self) -> str:
        return self.prefix + "boot/"

    @property
    def exits(self) -> str:
        return self.prefix + "exits/"

    @property
    def run(self) -> str:
        return self.prefix + "run/"

    @property
    def outcome(self) -> str:
        return self.prefix + OUTCOME


# Those of https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html, 2026-11-28.
REGIONS = (
    "af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1",
    "ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5",
    "ap-southeast-6", "ap-southeast-7", "ca-central-1", "ca-west-1", "eu-central-1", "eu-central-2", "eu-north-1",
    "eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "il-central-1", "me-central-1", "me-south-1",
    "mx-central-1", "sa-east-1", "us-east-1", "us-east-2", "us-west-1", "us-west-2",
)  # fmt: skip


def check_region_name(name: str, newer: Callable[[], Iterable[str]]) -> None:
    """Raise SettingsError for a region that does not exist, where calls would time out.  newer: looks all up."""
    if name not in REGIONS and name not in newer():
        raise SettingsError(
            f"AWS has no region {name!r} (of --region, AWS_DEFAULT_REGION or the AWS profile)"
            f"{did_you_mean(name, REGIONS) or '.'} If it is new, update boto3."
        )


def bucket_of(account: str, region: str) -> str:
    """The bucket that launch.infra creates."""
    return f"{TOOLKIT}-{account}-{region}"


def group_name(job: str) -> str:
    """The name of the job's security group, placement group and schedule."""
    return f"{TOOLKIT}-{job}"


def queue_name(name: str, suffix: str = "") -> str:
    """The name on AWS of a queue.  suffix: FOR_EC2 for one of launch.ec2."""
    return f"{QUEUES}{name}{suffix}"


def vcpus_name(queue: str, kind: str) -> str:
    """The name of the consumable resource that limits the vCPUs of a queue's jobs.  kind: of an EC2 quota's Family."""
    return f"{QUEUES}{queue}-{kind}"


def tags(
    job: str, bucket: str, started: datetime, deadline: datetime | None = None, owner: str = ""
) -> list[dict[str, str]]:
    """The tags of every resource of a job, in AWS's format.  owner: empty if it was not looked up."""
    named: Mapping[str, str] = {
        "Name": f"{TOOLKIT}-{job}",
        JOB_TAG: job,
        STARTED_TAG: started.strftime(TIME),
        **({DEADLINE_TAG: deadline.strftime(TIME)} if deadline else {}),
        BUCKET_TAG: bucket,
        **({OWNER_TAG: owner} if owner else {}),
    }
    return [{"Key": key, "Value": value} for key, value in named.items()]


def tag_values(resource: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a described resource as {key: value}."""
    return {tag["Key"]: tag["Value"] for tag in resource.get("Tags", resource.get("TagSet", ()))}


def read_time(text: str | None) -> datetime | None:
    """The time in a tag; None if it is missing or damaged."""
    try:
        return datetime.strptime(text or "", TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def read_usd(text: str | None) -> float | None:
    """The amount in a tag; None if it is missing or damaged."""
    return float(text) if text is not None and re.fullmatch(AMOUNT, text, re.ASCII) else None


def read_bucket(text: str | None) -> str | None:
    """The bucket in a tag; None if it is missing or damaged."""
    return text if text is not None and re.fullmatch(BUCKET_NAME, text) else None


def is_ours(values: Mapping[str, str]) -> bool:
    """Whether these are tags of a job, so that the toolkit may change or remove the resource."""
    return re.fullmatch(JOB_NAME, values.get(JOB_TAG, "")) is not None


def client_token(*parts: object) -> str:
    """A deterministic token of 64 characters: a repeated request has no second effect."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


@dataclass(frozen=True)
class S3Uri:
    """s3://bucket/key; the key may be empty, or a prefix."""

    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def parse_s3(uri: str) -> S3Uri | None:
    """Parse `uri`; None if it is not s3://bucket or s3://bucket/key.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
    """
    found = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", uri)
    return S3Uri(found[1], found[2] or "") if found else None


def known_s3(uri: str) -> S3Uri:
    """Parse `uri`, which is known to be an address in S3."""
    place = parse_s3(uri)
    if place is None:
        raise ValueError(f"{uri!r} is not in S3")
    return place


def is_path(name: str) -> bool:
    """Whether the untrusted rest of a key is a path that stays below its folder."""
    return not {"", ".", ".."} & set(name.split("/")) and "\0" not in name
