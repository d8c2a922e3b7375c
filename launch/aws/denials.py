"""Explain AWS's denials: which policy denied what on which resource, and who can change it.

AWS's messages, with all clauses: https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SCP, RCP = "service control policy", "resource control policy"
IDENTITY, RESOURCE = "identity-based policy", "resource-based policy"
# What AWS calls a kind of policy -> how it is shown, and who can change it.
KINDS = {
    IDENTITY: ("one of their own policies", "have that policy changed, or use other credentials"),
    "permissions boundary": (
        "their permissions boundary",
        "ask the account's administrator to allow {action} in the boundary",
    ),
    "session policy": (
        "the session policy that they were issued with",
        "sign in without it, or ask for a session that allows {action}",
    ),
    SCP: ("a service control policy of the organization", "choose another region, or ask the organization's "
          "administrator to allow {action} there"),
    RCP: ("a resource control policy of the organization", "ask the organization's administrator to allow {action}"),
    "VPC endpoint policy": (
        "the policy of the VPC endpoint through which this machine calls AWS",
        "ask the network's administrator to allow {action} in it",
    ),
    RESOURCE: ("the policy of the resource itself", "ask the resource's owner to allow {action} in it"),
    "role trust policy": ("the role's trust policy", "ask the account's administrator to allow {action} in it"),
}  # fmt: skip
# The kinds that a launch or its set-up changes; "" is AWS's silence about the kind.
MAY_BE_TOO_EARLY = {"", IDENTITY, RESOURCE, "role trust policy"}
_ACTION = re.compile(r"not authorized to perform: (?P<action>[\w-]+:\w+)")
_RESOURCE = re.compile(r"on resource: (?P<resource>\S+)")
_KIND = "|".join(map(re.escape, KINDS))
_MISSING = re.compile(rf"because no (?P<kind>{_KIND}) allows", re.IGNORECASE)
_DENYING = re.compile(rf"with an explicit deny in (?:an?|the) (?P<kind>{_KIND})(?:: (?P<arn>arn:\S+))?", re.IGNORECASE)
_ENCODED = re.compile(r"Encoded authorization failure message: (?P<message>[\w-]+)")
_BY_NAME = {kind.lower(): kind for kind in KINDS}


@dataclass(frozen=True)
class Denial:
    """What AWS says about a denial."""

    action: str  # such as ec2:RunInstances
    resource: str = ""  # its ARN; empty if AWS names none
    kind: str = ""  # of KINDS; empty if AWS names no policy
    is_explicit: bool = False  # the policy denies it, instead of not allowing it
    policy: str = ""  # its ARN; empty if AWS names none
    encoded: str = ""  # what only sts:DecodeAuthorizationMessage can read


def parse(message: str, action: str) -> Denial:
    """Parse AWS's message.  action: of the request, which may need permissions of other names."""
    named, resource = _ACTION.search(message), _RESOURCE.search(message)
    denying, missing, encoded = _DENYING.search(message), _MISSING.search(message), _ENCODED.search(message)
    clause = denying or missing
    return Denial(
        action=named["action"] if named else action,
        resource=resource["resource"].strip("\"'.,") if resource else "",
        kind=_BY_NAME[clause["kind"].lower()] if clause else "",
        is_explicit=denying is not None,
        policy=(denying["arn"] or "").rstrip(".,") if denying else "",
        encoded=encoded["message"] if encoded else "",
    )


def explain(denial: Denial, granted_by: str) -> str:
    """A sentence with the reason and a remedy.  granted_by: the file in infra/iam that allows the action."""
    what = f"these credentials may not {denial.action}" + (f" on {denial.resource}" if denial.resource else "")
    if not denial.kind or (denial.kind == IDENTITY and not denial.is_explicit):
        grant = f"the policy in {granted_by}, which allows it" if granted_by else "a policy that allows it"
        text = f"{what}; ask for {grant} (a policy takes effect within a minute)."
        if "administrator" in granted_by:
            text += "  Or have an administrator create the stack: infra/account.md, If you may not create roles."
    else:
        who, remedy = KINDS[denial.kind]
        verb = "denies it" if denial.is_explicit else "does not allow it"
        policy = f" ({denial.policy})" if denial.policy else ""
        text = f"{what}: {who}{policy} {verb}; {remedy.format(action=denial.action)}."
    return text + (f"\n  AWS's reason: {decode_command(denial.encoded)}" if denial.encoded else "")


def decode_command(encoded: str) -> str:
    """https://docs.aws.amazon.com/STS/latest/APIReference/API_DecodeAuthorizationMessage.html"""
    return f"aws sts decode-authorization-message --query DecodedMessage --output text --encoded-message {encoded}"


def is_by_organization(message: str) -> bool:
    """Whether the organization's service control policies deny it, which apply to the whole account."""
    return parse(message, "").kind == SCP
