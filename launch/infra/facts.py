"""What launch.infra must know of an account before it decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.errors import TrainerError

# A stack in REVIEW_IN_PROGRESS is one that was planned and never made.
PLANNED = "REVIEW_IN_PROGRESS"


@dataclass(frozen=True)
class Stack:
    """id: its ARN; drift: CloudFormation's word for what was changed by hand; resources: {id: physical id}; types:
    {id: type}.
    """

    id: str
    status: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    drift: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        """Whether CloudFormation is at work on it."""
        return self.status.endswith("_IN_PROGRESS") and self.status != PLANNED

    @property
    def has_roles(self) -> bool:
        """Whether it has what is the account's, which the stacks and jobs of other regions use."""
        return "NodeRole" in self.resources

    def named(self, kind: str) -> list[str]:
        """The physical ids of its resources of a type."""
        return [name for thing, name in self.resources.items() if name and self.types.get(thing) == kind]


@dataclass(frozen=True)
class Vpc:
    """A network.  cidr: its first range of addresses; route_tables: those without a way to S3 that is not the stack's;
    named: services to which an endpoint that is not the stack's has the way, by AWS's own names.
    """

    cidr: str
    route_tables: tuple[str, ...]
    other_cidrs: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """account: "" if AWS could not be asked.

    adopted: the template's ids of what is there already and holds data; strangers: (kind, name) of what is there and
    in the way; owner: the region whose stack has what is the account's, if another's.
    """

    region: str
    account: str = ""
    stack: Stack | None = None
    adopted: tuple[str, ...] = ()
    strangers: tuple[tuple[str, str], ...] = ()
    owner: str | None = None
    vpc: Vpc | None = None
    problems: tuple[TrainerError, ...] = ()
