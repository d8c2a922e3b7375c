"""What launch.infra must know of an account before it decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.errors import TrainerError

# State of a stack that was planned and never created.
PLANNED = "REVIEW_IN_PROGRESS"


@dataclass(frozen=True)
class Stack:
    """A CloudFormation stack.

    id: its ARN; drift: CloudFormation's state of it; resources: {logical id: physical id}; types: {logical id: type}.
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
        """Whether CloudFormation is changing it."""
        return self.status.endswith("_IN_PROGRESS") and self.status != PLANNED

    @property
    def has_roles(self) -> bool:
        """Whether it holds the roles, which jobs and stacks of all regions use."""
        return "NodeRole" in self.resources

    def physical_ids(self, kind: str) -> list[str]:
        """Physical ids of its resources of one type."""
        return [id_ for name, id_ in self.resources.items() if id_ and self.types.get(name) == kind]


@dataclass(frozen=True)
class Vpc:
    """A network.

    cidr: its primary range; route_tables: those without a gateway endpoint to S3, but for the stack's own.
    private_services: services that have an endpoint with private DNS names, but for the stack's own.
    """

    cidr: str
    route_tables: tuple[str, ...]
    other_cidrs: tuple[str, ...] = ()
    private_services: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What AWS says of an account.  account: "" if it could not be looked up.

    adopted: logical ids of existing resources with data that the stack takes over; conflicts: (kind, name) of existing
    resources that it cannot; owner_region: the region whose stack holds the roles, if it is another.
    """

    region: str
    account: str = ""
    stack: Stack | None = None
    adopted: tuple[str, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()
    owner_region: str | None = None
    vpc: Vpc | None = None
    problems: tuple[TrainerError, ...] = ()
