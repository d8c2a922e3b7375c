"""The resources of a job, or of all jobs, as launch.ec2.finding describes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

# EC2's reasons for the end of nodes that it took and then could not start: no machine, or no volume.
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html
NO_MACHINE, INTERNAL_ERROR = "Server.InsufficientInstanceCapacity", "Server.InternalError"
NO_START = (NO_MACHINE, INTERNAL_ERROR, "Client.VolumeLimitExceeded", "Client.VolumeInitialization")
# Its reasons for spot nodes that it takes back.
TAKEN_BACK = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")

# AWS lists a terminated instance for about an hour; it is not billed from shutting-down on.
LIVE = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True)
class Node:
    """One instance of a job."""

    id: str
    job: str
    state: str
    type: str
    zone: str
    address: str
    launched_at: datetime
    generation: int
    spot: bool
    launch_index: int
    subnet: str = ""
    vcpus: int = 0
    reason: str = ""  # why EC2 ended it
    ended_at: datetime | None = None  # None where EC2 does not say
    usd_per_hour: float | None = None  # on demand, by its tag
    usd_once: float = 0.0  # what its start cost, by its tag
    started: datetime | None = None  # when the job was started, from the tag: tells two starts of a job apart
    owner: str = ""  # aws:userid of who started it, by its tag: for a reader

    @property
    def lives(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True)
class Resource:
    """A job's resource other than an instance: a volume, group or schedule.  created: None where AWS does not say."""

    kind: str
    id: str
    job: str
    state: str = ""
    created: datetime | None = None
    gib: int = 0
    volume_type: str = ""
    attached_to: tuple[str, ...] = ()
    device: str = ""
    iops: int = 0
    mib_per_s: int = 0
    zone: str = ""
    deleted_with: tuple[str, ...] = ()  # those nodes of attached_to whose end deletes it


@dataclass(frozen=True)
class Fleet:
    """All resources of one job or of all.  started, deadlines, buckets: by job, from the tags."""

    nodes: tuple[Node, ...] = ()
    resources: tuple[Resource, ...] = ()
    started: Mapping[str, datetime] = field(default_factory=dict)
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    buckets: Mapping[str, str] = field(default_factory=dict)

    @property
    def living(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.lives)

    @property
    def present(self) -> tuple[Node, ...]:
        """The nodes that are not terminated: living or shutting down."""
        return tuple(node for node in self.nodes if node.state != "terminated")

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that have living nodes or other resources."""
        with_nodes = {node.job for node in self.living}
        return tuple(sorted(with_nodes | {resource.job for resource in self.resources}))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left that is billed or blocks a new start."""
        return not self.present and not self.resources

    def of(self, job: str) -> "Fleet":
        """The part that belongs to `job`."""
        return Fleet(
            tuple(node for node in self.nodes if node.job == job),
            tuple(resource for resource in self.resources if resource.job == job),
            self.started,
            self.deadlines,
            self.buckets,
        )

    def kind(self, kind: str) -> tuple[Resource, ...]:
        """The resources of one kind."""
        return tuple(resource for resource in self.resources if resource.kind == kind)

    @property
    def shared_volumes(self) -> tuple[Resource, ...]:
        """The volumes that all nodes of a job read."""
        return tuple(volume for volume in self.kind("volume") if volume.volume_type == "io2")
