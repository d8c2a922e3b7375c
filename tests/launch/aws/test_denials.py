"""A denial is reported with AWS's resource and clause, and names who can change the policy.

The messages are those of https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
"""

import pytest

from launch.aws.denials import RCP, SCP, Denial, parse
from launch.aws.refusals import is_forbidden, sentence

USER = "User: arn:aws:sts::123456789012:assumed-role/r/me is not authorized to perform: "
RUN, INSTANCE = "ec2:RunInstances", "arn:aws:ec2:us-east-1:123456789012:instance/*"
ON = f"{USER}{RUN} on resource: {INSTANCE} "
POLICY = "arn:aws:organizations::777788889999:policy/o-exampleorgid/service_control_policy/p-examplepolicyid123"


@pytest.mark.parametrize(
    ("clause", "kind", "is_explicit", "words"),
    [
        ("because no identity-based policy allows the ec2:RunInstances action", "identity-based policy", False,
         ("infra/iam/launcher.json", "within a minute")),
        ("with an explicit deny in an identity-based policy", "identity-based policy", True,
         ("one of their own policies denies it",)),
        ("because no permissions boundary allows the ec2:RunInstances action", "permissions boundary", False,
         ("boundary does not allow it",)),
        ("with an explicit deny in a permissions boundary", "permissions boundary", True, ("boundary denies it",)),
        ("because no session policy allows the ec2:RunInstances action", "session policy", False, ("session",)),
        ("because no service control policy allows the ec2:RunInstances action", SCP, False, ("another region",)),
        (f"with an explicit deny in a service control policy: {POLICY}", SCP, True, (f"({POLICY})", "organization")),
        ("with an explicit deny in a resource control policy", RCP, True, ("organization",)),
        ("because no VPC endpoint policy allows the ec2:RunInstances action", "VPC endpoint policy", False,
         ("network",)),
        ("because no resource-based policy allows the ec2:RunInstances action", "resource-based policy", False,
         ("owner",)),
    ],
)  # fmt: skip
def test_the_clause_decides_who_can_change_it(clause: str, kind: str, is_explicit: bool, words: tuple[str]) -> None:
    denial = parse(ON + clause, RUN)
    assert (denial.action, denial.resource, denial.kind, denial.is_explicit) == (RUN, INSTANCE, kind, is_explicit)

    text = sentence("UnauthorizedOperation", ON + clause, RUN, "us-east-1")

    assert text.startswith(f"these credentials may not {RUN} on {INSTANCE}")
    assert all(word in text for word in words)
    assert ("infra/iam" in text) == (kind == "identity-based policy" and not is_explicit)
    assert is_forbidden("UnauthorizedOperation", ON + clause) == (kind == SCP)


def test_an_action_that_a_request_needs_beside_its_own_is_named() -> None:
    message = f"You are not authorized to perform this operation. {USER}iam:PassRole on resource: arn:aws:iam::1:role/r"
    assert parse(message, RUN) == Denial("iam:PassRole", "arn:aws:iam::1:role/r")


def test_an_encoded_reason_comes_with_the_command_that_decodes_it() -> None:
    message = (
        "You are not authorized to perform this operation. Encoded authorization failure message: 4GIOHlTkIaWHQ-u_x"
    )

    first, second = sentence("UnauthorizedOperation", message, RUN, "us-east-1").splitlines()

    assert first.startswith(f"these credentials may not {RUN}; ")
    assert "decode-authorization-message" in second
    assert second.endswith("--encoded-message 4GIOHlTkIaWHQ-u_x")
