"""The facts for an instance that publishes a data set, and run.json in S3, the record of its run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from launch.aws.instances.facts import Quota, Subnet
from launch.aws.names import TIME, TOOLKIT, tags
from launch.aws.network import INTERNET, Exit
from launch.core.plan import Request
from launch.core.price import CATALOGS, Prices
from launch.data.near.source import Source
from trainer.contract import TIME_IN_NAMES, random_letters
from trainer.errors import TrainerError

PUBLISHES_TAG = f"{TOOLKIT}:publishes"  # on the instance and its group: the name of the data set
PROFILE = f"{TOOLKIT}-publisher"


@dataclass(frozen=True)
class Run:
    """An instance's work for one data set; a command with an equal run continues it."""

    id: str  # its job name
    name: str
    account: str
    region: str
    bucket: str
    owner: str  # aws:userid of the user who started it
    source: str  # s3://...
    type: str  # of the instance
    words: tuple[str, ...]  # flags of launch.data on the instance
    code: str  # SHA-256 of the bundle
    ami: str  # of the instance
    root: str  # device of the AMI's root volume
    gib: int  # of the root volume
    started: datetime  # UTC
    deadline: datetime  # UTC

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
        """The name of its security group and its time limit."""
        return f"{TOOLKIT}-{self.id}"

    @property
    def tags(self) -> list[dict[str, str]]:
        """The tags of a job's machines, for the time limit, the sweeper and `launch.ec2 leaks`, and PUBLISHES_TAG."""
        ours = tags(self.id, self.bucket, self.started, self.deadline, self.owner)
        return [*ours, {"Key": PUBLISHES_TAG, "Value": self.name}]

    def place(self, file: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.prefix + file, "ExpectedBucketOwner": self.account}


# Error codes of a conditional request: run.json has changed, is being written, or was deleted.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")
RUN, EXIT, PROGRESS, LOG = "run.json", "exit.json", "progress.json", "log.txt"


def prefix_of(name: str) -> str:
    """The prefix of the files that instance and launcher share; the data set is elsewhere."""
    return f"data-runs/{name}/"


def new_id(name: str, now: datetime, letters: str) -> str:
    """A job name such as data-photos-20261123-134500-k3v7q, of at most 48 characters.  letters: random."""
    return f"{_stem_of(name)}{now:{TIME_IN_NAMES}}-{letters}"


def _stem_of(name: str) -> str:
    return f"data-{name[:21].rstrip('-')}-"


def put_run(run: Run, known_as: str, ended: str = "") -> Request:
    """Write run.json, unless another command has meanwhile.  known_as: the ETag of the version to replace, "" for none.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html: 412 if it is another version, 409 if
    two write at once.
    """
    condition = {"IfMatch": known_as} if known_as else {"IfNoneMatch": "*"}
    body = json.dumps({**asdict(run), "started": run.started.strftime(TIME), "deadline": run.deadline.strftime(TIME),
                       "ended": ended}, indent=1)  # fmt: skip
    params = {**run.place(RUN), "Body": body.encode(), "ContentType": "application/json", **condition}
    return Request("s3", "PutObject", params, "note that it ended" if ended else "note what is begun")


def read_run(content: Mapping[str, Any]) -> Run:
    """Read the run in run.json.  Raises KeyError, TypeError and ValueError if it is damaged."""
    fields = {name: str(content[name]) for name in ("id", "name", "account", "region", "bucket", "owner", "source",
                                                    "type", "code", "ami", "root")}  # fmt: skip
    times = {name: datetime.strptime(content[name], TIME).replace(tzinfo=UTC) for name in ("started", "deadline")}
    return Run(**fields, **times, gib=int(content["gib"]), words=tuple(map(str, content["words"])))  # type: ignore[arg-type]


LIVING = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True)
class Machine:
    """An instance that publishes.  state: EC2's; run: from its tags."""

    id: str
    state: str
    run: str

    @property
    def lives(self) -> bool:
        return self.state in LIVING


@dataclass(frozen=True)
class Group:
    """A security group.  run: from its tags."""

    id: str
    run: str


@dataclass(frozen=True)
class Parts:
    """The EC2 resources of the runs that publish a data set."""

    machines: tuple[Machine, ...] = ()
    groups: tuple[Group, ...] = ()

    def of(self, run: str | None) -> "Parts":
        """The resources of one run; None: all."""
        return Parts(
            tuple(one for one in self.machines if run in (None, one.run)),
            tuple(one for one in self.groups if run in (None, one.run)),
        )

    @property
    def runs(self) -> frozenset[str]:
        return frozenset(one.run for one in self.machines) | frozenset(one.run for one in self.groups)

    @property
    def living(self) -> tuple[Machine, ...]:
        return tuple(one for one in self.machines if one.lives)


@dataclass(frozen=True)
class Ami:
    """An AMI.  gib: of its root volume."""

    id: str
    root: str
    gib: int


ROOT_GIB = 16
NO_AMI = Ami("<ami>", "/dev/xvda", ROOT_GIB)


@dataclass(frozen=True)
class Near:
    """The facts of a region for one data set."""

    region: str
    account: str = ""
    owner: str = ""
    letters: str = field(default_factory=random_letters)  # for the id of a new run
    source: Source | None = None
    record: Mapping[str, Any] | None = None  # published.json
    run: Run | None = None  # of run.json
    etag: str = ""  # of run.json
    ended: str = ""  # when the run ended, by run.json
    over: Mapping[str, Any] | None = None  # the record of its end
    machines: tuple[Machine, ...] = ()  # all with the data set's name
    groups: Mapping[str, str] = field(default_factory=dict)  # id by run
    subnets: tuple[Subnet, ...] = ()
    exits: Mapping[str, Exit] = field(default_factory=dict)  # by subnet
    offered: Mapping[str, frozenset[str]] = field(default_factory=dict)  # zones by type
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # of vCPUs, by name
    ami: Ami = NO_AMI  # the newest Amazon Linux
    role: str = ""  # of the time limit
    prices: Prices = CATALOGS
    problems: tuple[TrainerError, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def is_looked_up(self) -> bool:
        return bool(self.account)

    def is_open(self, now: Any) -> bool:
        """Whether a run has not ended, so that the same command continues it."""
        if self.run is None or self.ended or self.over is not None or now >= self.run.deadline:
            return False
        its = self.machines_of(self.run)
        return not its or any(one.lives for one in its)

    def machines_of(self, run: Run) -> tuple[Machine, ...]:
        return tuple(one for one in self.machines if one.run == run.id)

    @property
    def is_unseen(self) -> bool:
        """Whether a run has ended, and no command has read its result and removed its resources."""
        return self.run is not None and self.over is not None and not self.ended

    def reachable(self, subnet: Subnet) -> bool:
        """Whether an instance there can reach AWS and the packages; true if that is not known."""
        way = self.exits.get(subnet.id)
        return way is None or not way.missing((INTERNET,), has_address=subnet.gives_addresses)
