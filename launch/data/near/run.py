"""One publication by an instance: what run.json in S3 says of it, and its names in the account.  Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from launch.aws.names import TIME, TOOLKIT, tags
from launch.core.steps import Request
from trainer.contract import TIME_IN_NAMES

PUBLISHES_TAG = f"{TOOLKIT}:publishes"  # on the instance and its group: the name of the data set
PROFILE = f"{TOOLKIT}-publisher"


@dataclass(frozen=True)
class Run:
    """What makes two runs the same, so that the same command goes on with one that has begun.

    id: its name as a job's; started, deadline: UTC; source: s3://...; type: of the instance; words: the flags of
    launch.data on it; code: SHA-256 of the bundle; ami, root, gib: its image, with its root device and that one's size;
    account, region, bucket: where; owner: who began it.
    """

    id: str
    name: str
    account: str
    region: str
    bucket: str
    owner: str
    source: str
    type: str
    words: tuple[str, ...]
    code: str
    ami: str
    root: str
    gib: int
    started: datetime
    deadline: datetime

    @property
    def prefix(self) -> str:
        return prefix_of(self.name)

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def code_key(self) -> str:
        return f"{self.prefix}code-{self.code[:16]}.tar.gz"

    @property
    def group(self) -> str:
        """The name of its security group and of its time limit."""
        return f"{TOOLKIT}-{self.id}"

    @property
    def tags(self) -> list[dict[str, str]]:
        """All that a job's machines have, so that time limit, sweeper and `launch.ec2 leaks` know it; and one more."""
        ours = tags(self.id, self.bucket, self.started, self.deadline, self.owner)
        return [*ours, {"Key": PUBLISHES_TAG, "Value": self.name}]

    def place(self, file: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.prefix + file, "ExpectedBucketOwner": self.account}


# Of a conditional request: run.json is another by now, is being written, or was deleted.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")
RUN, EXIT, PROGRESS, LOG = "run.json", "exit.json", "progress.json", "log.txt"


def prefix_of(name: str) -> str:
    """Where the instance and who follows it meet; nothing of the data set is in it."""
    return f"data-runs/{name}/"


def new_id(name: str, now: datetime, letters: str) -> str:
    """data-photos-20261123-134500-k3v7q: a job's name, of at most 48 characters.  letters: random ones."""
    return f"{_stem_of(name)}{now:{TIME_IN_NAMES}}-{letters}"


def _stem_of(name: str) -> str:
    return f"data-{name[:21].rstrip('-')}-"


def put_run(run: Run, known_as: str, ended: str = "") -> Request:
    """Writes run.json, unless somebody else has meanwhile.  known_as: the ETag of what it replaces, "" for nothing.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html: 412 if it is another, and 409 if two
    write at once.
    """
    condition = {"IfMatch": known_as} if known_as else {"IfNoneMatch": "*"}
    body = json.dumps({**asdict(run), "started": run.started.strftime(TIME), "deadline": run.deadline.strftime(TIME),
                       "ended": ended}, indent=1)  # fmt: skip
    params = {**run.place(RUN), "Body": body.encode(), "ContentType": "application/json", **condition}
    return Request("s3", "PutObject", params, "note that it ended" if ended else "note what is begun")


def read_run(content: Mapping[str, Any]) -> Run:
    """The run that run.json describes.  Raises KeyError, TypeError and ValueError for one that is damaged."""
    fields = {name: str(content[name]) for name in ("id", "name", "account", "region", "bucket", "owner", "source",
                                                    "type", "code", "ami", "root")}  # fmt: skip
    times = {name: datetime.strptime(content[name], TIME).replace(tzinfo=UTC) for name in ("started", "deadline")}
    return Run(**fields, **times, gib=int(content["gib"]), words=tuple(map(str, content["words"])))  # type: ignore[arg-type]
