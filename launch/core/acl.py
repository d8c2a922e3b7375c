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
    for entry in sorted(entries, key=lambda entry: int(entry["RuleNumber"])):
        if entry.get("Egress") is not is_egress or "CidrBlock" not in entry or entry.get("Protocol") not in (TCP, ALL):
            continue
        first, last = _ports(entry)
        if entry["RuleAction"] == "allow" and first <= ports[1] and ports[0] <= last:
            return True
        if (
            entry["RuleAction"] == "deny"
            and entry["CidrBlock"] == EVERYWHERE
            and first <= ports[0]
            and ports[1] <= last
        ):
            return False
    return False


def _ports(entry: Mapping[str, Any]) -> tuple[int, int]:
    given = entry.get("PortRange") or {}
    return int(given.get("From", 0)), int(given.get("To", 65535))
