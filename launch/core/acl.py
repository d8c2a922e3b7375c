"""Whether a subnet's network ACL lets machines in it call AWS: HTTPS out, and the answers in.  Pure.

It keeps no state, so answers need a rule of their own, to the ports from which Linux calls.  It does not see traffic
within a subnet, nor questions to the VPC's own DNS.
https://docs.aws.amazon.com/vpc/latest/userguide/nacl-basics.html,
https://docs.aws.amazon.com/vpc/latest/userguide/custom-network-acl.html#nacl-ephemeral-ports
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

HTTPS = (443, 443)
ANSWERS = (32768, 60999)  # net.ipv4.ip_local_port_range
EVERYWHERE = "0.0.0.0/0"
TCP, ALL = "6", "-1"


def of_subnet(subnet: str, acls: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The subnet's ACL, as EC2 describes it; nothing if it is not among them."""
    rows = (acl for acl in acls for tie in acl.get("Associations", ()) if tie.get("SubnetId") == subnet)
    return next(rows, {})


def shut(acl: Mapping[str, Any]) -> Literal["out", "in"] | None:
    """In which direction it surely stops calls to AWS.  None, too, where some addresses or ports get through."""
    entries = acl.get("Entries", ())
    if not acl:
        return None
    if not _lets_through(entries, HTTPS, is_egress=True):
        return "out"
    return None if _lets_through(entries, ANSWERS, is_egress=False) else "in"


def _lets_through(entries: Sequence[Mapping[str, Any]], ports: tuple[int, int], *, is_egress: bool) -> bool:
    """Whether a rule allows one of these ports before another denies all of them; the first that fits counts."""
    fitting = [entry for entry in entries if entry.get("Egress") is is_egress and _is_for_calls(entry)]
    for entry in sorted(fitting, key=lambda entry: int(entry["RuleNumber"])):
        if entry["RuleAction"] == "allow" and _meets(_ports(entry), ports):
            return True
        if entry["RuleAction"] == "deny" and entry["CidrBlock"] == EVERYWHERE and _holds(_ports(entry), ports):
            return False
    return False


def _meets(some: tuple[int, int], others: tuple[int, int]) -> bool:
    return some[0] <= others[1] and others[0] <= some[1]


def _holds(some: tuple[int, int], others: tuple[int, int]) -> bool:
    return some[0] <= others[0] and others[1] <= some[1]


def _is_for_calls(entry: Mapping[str, Any]) -> bool:
    return "CidrBlock" in entry and entry.get("Protocol") in (TCP, ALL)  # others are for IPv6


def _ports(entry: Mapping[str, Any]) -> tuple[int, int]:
    given = entry.get("PortRange") or {}
    return int(given.get("From", 0)), int(given.get("To", 65535))
