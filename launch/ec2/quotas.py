"""Which vCPU quota of the account an instance type falls under.  Pure.

Codes and names: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
"""

from dataclasses import dataclass

from launch.catalog import Instance


@dataclass(frozen=True)
class Family:
    """A quota: its code, and the beginnings of the names of the types that share it."""

    code: str
    name: str
    letters: tuple[str, ...]
    spot: bool


_STANDARD = ("a", "c", "d", "h", "i", "m", "r", "t", "z")
_FAMILIES = (
    Family("L-DB2E81BA", "Running On-Demand G and VT instances", ("g", "vt"), False),
    Family("L-417A185B", "Running On-Demand P instances", ("p",), False),
    Family("L-1216C47A", "Running On-Demand Standard instances", _STANDARD, False),
    Family("L-3819A6DF", "All G and VT Spot Instance Requests", ("g", "vt"), True),
    Family("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", ("p2", "p3", "p4"), True),
    Family("L-C4BD4855", "All P5 Spot Instance Requests", ("p5",), True),
    Family("L-34B43A08", "All Standard Spot Instance Requests", _STANDARD, True),
)


def quota_of(instance: Instance, spot: bool) -> Family:
    """The quota that limits how many of `instance` run."""
    return next(f for f in _FAMILIES if f.spot == spot and instance.name.startswith(f.letters))
