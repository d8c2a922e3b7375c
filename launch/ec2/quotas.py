"""The vCPU quotas that limit how many instances of a type run.  Pure.

Codes and names: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
"""

import re
from dataclasses import dataclass

from launch.core.catalog import Instance
from launch.ec2.fleet import Node

# EC2's states of an instance that counts.
COUNTED = ("pending", "running")


@dataclass(frozen=True)
class Family:
    """A quota and the generations of types that share it: p5, or p for every p with a number after it."""

    code: str
    name: str
    generations: tuple[str, ...]
    spot: bool

    def counts(self, instance_type: str) -> bool:
        """Whether the type counts against it; trn1 is not one of the t's."""
        patterns = [name if name[-1].isdigit() else name + r"\d" for name in self.generations]
        return re.match("|".join(patterns), instance_type) is not None

    def is_of(self, node: Node) -> bool:
        """Whether a node that runs counts against it."""
        return self.counts(node.type) and node.spot == self.spot


_STANDARD = ("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z")
_GRAPHICS = ("g", "gr", "vt")
_FAMILIES = (
    Family("L-DB2E81BA", "Running On-Demand G and VT instances", _GRAPHICS, False),
    Family("L-417A185B", "Running On-Demand P instances", ("p",), False),
    Family("L-1216C47A", "Running On-Demand Standard instances", _STANDARD, False),
    Family("L-3819A6DF", "All G and VT Spot Instance Requests", _GRAPHICS, True),
    Family("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", ("p2", "p3", "p4"), True),
    Family("L-C4BD4855", "All P5 Spot Instance Requests", ("p5",), True),
    Family("L-34B43A08", "All Standard Spot Instance Requests", _STANDARD, True),
)


def quota_of(instance: Instance, spot: bool) -> Family:
    """The quota that limits how many of `instance` run."""
    return next(family for family in _FAMILIES if family.spot == spot and family.counts(instance.name))
