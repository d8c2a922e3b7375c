"""What must be known before an instance publishes a data set."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launch.aws.machines import Subnet
from launch.aws.network import INTERNET, Exit
from launch.aws.quotas import Quota
from launch.core.price import CATALOGS, Prices
from launch.data.near.run import Run
from launch.data.near.source import Source
from trainer.contract import random_letters
from trainer.errors import TrainerError

LIVING = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True)
class Machine:
    """An instance that publishes.  state: EC2's; run: by its tags."""

    id: str
    state: str
    run: str

    @property
    def lives(self) -> bool:
        return self.state in LIVING


@dataclass(frozen=True)
class Group:
    """A security group.  run: by its tags."""

    id: str
    run: str


@dataclass(frozen=True)
class Parts:
    """What EC2 has of the runs that publish a data set."""

    machines: tuple[Machine, ...] = ()
    groups: tuple[Group, ...] = ()

    def of(self, run: str | None) -> "Parts":
        """Those of one run; None: all."""
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
    """gib: of its root volume."""

    id: str
    root: str
    gib: int


ROOT_GIB = 16
NO_AMI = Ami("<ami>", "/dev/xvda", ROOT_GIB)


@dataclass(frozen=True)
class Near:
    """The facts of a region for one data set.

    record: published.json; run: what run.json says, with its ETag and when it ended; over: the record of its end;
    machines: all that carry the data set's name; groups: id by run; exits: by subnet;
    offered: zones by type; quotas: of vCPUs, by name; ami: Amazon Linux's; role: of the time limit.
    """

    region: str
    account: str = ""
    owner: str = ""
    letters: str = field(default_factory=random_letters)  # for the id of a new run
    source: Source | None = None
    record: Mapping[str, Any] | None = None
    run: Run | None = None
    etag: str = ""
    ended: str = ""
    over: Mapping[str, Any] | None = None
    machines: tuple[Machine, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    subnets: tuple[Subnet, ...] = ()
    exits: Mapping[str, Exit] = field(default_factory=dict)
    offered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    ami: Ami = NO_AMI
    role: str = ""
    prices: Prices = CATALOGS
    problems: tuple[TrainerError, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def is_looked_up(self) -> bool:
        return bool(self.account)

    def is_open(self, now: Any) -> bool:
        """Whether a run was begun that has not ended: the same command goes on with it."""
        if self.run is None or self.ended or self.over is not None or now >= self.run.deadline:
            return False
        its = self.machines_of(self.run)
        return not its or any(one.lives for one in its)

    def machines_of(self, run: Run) -> tuple[Machine, ...]:
        return tuple(one for one in self.machines if one.run == run.id)

    @property
    def is_unseen(self) -> bool:
        """Whether a run has ended, and nobody has taken its result and removed what it was."""
        return self.run is not None and self.over is not None and not self.ended

    def reachable(self, subnet: Subnet) -> bool:
        """Whether an instance there gets to AWS and to the packages; true where the way is not known."""
        way = self.exits.get(subnet.id)
        return way is None or not way.missing((INTERNET,), has_address=subnet.gives_addresses)
