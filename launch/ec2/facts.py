"""The results of the look-ups, for the planner.  None or empty where a look-up failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from launch.aws.batch import Queued, QueueFacts
from launch.aws.instances.facts import Ami, Quota, Subnet
from launch.aws.instances.inventory import Fleet
from launch.aws.names import ROLES_VERSION, Folder
from launch.aws.network import Exit
from launch.core.catalog import Instance
from launch.core.earlier import Earlier
from launch.core.manifest import Content
from launch.core.price import CATALOGS, Prices
from trainer.errors import TrainerError


@dataclass(frozen=True)
class Snapshot:
    """The snapshot from which data volumes are created."""

    id: str
    gib: int  # of a volume created from it
    full_bytes: int = 0  # of the data in it, 0 if AWS does not say
    content: Content | None = None  # counted by launch.data; None for a snapshot made by hand

    @property
    def data_gib(self) -> float:
        return self.full_bytes / 2**30 or self.gib


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation or block."""

    id: str
    zone: str
    instance_type: str
    free: int
    ends: datetime | None = None  # when EC2 takes a capacity block back


@dataclass(frozen=True)
class WarmNodes:
    """The nodes of an ended job, which wait for a next one."""

    folder: Folder  # of that job
    fleet: Fleet  # all its resources
    spec: Mapping[str, Any]  # its job.json
    until: datetime  # when the first of them ends itself
    claim: bytes | None = None  # the boot script of the job that has claimed them

    @property
    def job(self) -> str:
        return self.folder.job


def next_key(folder: Folder, started: datetime) -> str:
    """The key of the boot script of the job that takes over the warm nodes of this start of a job.

    It is in source/, where infra/iam lets launchers create new objects, and nodes only read.
    """
    return folder.prefix + next_name(started)


def next_name(started: datetime) -> str:
    """The same within the job folder."""
    return f"source/next-{int(started.timestamp())}"


@dataclass(frozen=True)
class Facts:
    """Everything that the planner knows about the account and the job."""

    region: str
    account: str | None = None
    owner: str = ""  # aws:userid of the caller
    subnets: tuple[Subnet, ...] = ()
    exits: Mapping[str, Exit] = field(default_factory=dict)  # by subnet; empty if unknown
    closed_dns: tuple[str, ...] = ()  # the VPC's own DNS servers, if --security-group lets no request out to them
    types: Mapping[str, Instance] = field(default_factory=dict)  # those that the catalog lacks, by name
    offered: Mapping[str, frozenset[str]] = field(default_factory=dict)  # type -> zones
    ami: Ami | None = None
    image: str | None = None  # URI with digest
    snapshot: Snapshot | None = None
    content: Content | None = None  # of a prepared data set that nodes read from S3
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # by name
    spot_usd_per_hour: Mapping[str, float] = field(default_factory=dict)  # type -> price in the most expensive zone
    spot_scores: Mapping[str, int] = field(default_factory=dict)  # zone -> how likely spot nodes start there, 1 to 10
    prices: Prices = CATALOGS
    reservation: Reservation | None = None
    scheduler_role: str | None = None  # ARN
    old_stack: str = ""  # the region of the stack that made that role, if it is older than this version needs
    roles: int = ROLES_VERSION  # the version of that stack's roles, see launch.aws.names
    fleet: Fleet = field(default_factory=Fleet)
    queue: QueueFacts | None = None  # that the job is to wait in
    queued: Queued | None = None  # its launcher that waits or runs in a queue
    warm: tuple[WarmNodes, ...] = ()  # nodes of other jobs, as many and of the same types
    fleet_is_known: bool = True  # whether AWS was asked for it, and answered
    spec: Mapping[str, Any] | None = None  # job.json of an earlier start of this job
    etag: str = ""  # of that job.json
    last_generation: int = 0  # of the nodes in the last cluster.json
    earlier: tuple[Earlier, ...] = ()  # jobs that trained the same script, the newest first
    is_sent: bool = False  # whether the script's source is in S3
    has_log_group: bool = True
    now: datetime = datetime.min
    problems: tuple[TrainerError, ...] = ()  # why the job cannot start
    unknown: tuple[str, ...] = ()  # what could not be looked up, as sentences

    @property
    def dns(self) -> tuple[str, ...]:
        """The addresses of the VPC's own DNS servers."""
        return next((found.dns for found in self.exits.values()), ())

    @property
    def counted(self) -> Content | None:
        """The content of the data, if launch.data or trainer.prepare has counted it."""
        return self.snapshot.content if self.snapshot else self.content
