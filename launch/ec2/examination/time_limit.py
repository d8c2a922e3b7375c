"""Time limits: that what ends a job's nodes at its deadline can do so.  AWS tells nobody when a schedule fails."""

from collections.abc import Iterator

from launch.aws.examination.case import ROLE, Right, Verdict, ok, warning
from launch.aws.examination.permissions import denied, stack_region
from launch.aws.lookup import SET_UP
from launch.aws.machines import GRACE_MINUTES
from launch.aws.names import SWEEPER_DOCUMENT, TOOLKIT
from launch.core.errors import AwsError
from launch.ec2.examination.shared import Ec2Case

# What a schedule asks for in its role's name.
RIGHTS = [
    Right(["ssm:StartAutomationExecution"], [f"arn:aws:ssm:{{REGION}}:{{ACCOUNT}}:document/{SWEEPER_DOCUMENT}"]),
    Right(["iam:PassRole"], [f"{ROLE}{TOOLKIT}-sweeper"], {"iam:PassedToService": "ssm.amazonaws.com"}),
]
OLDER = "so time limits have no effect beyond the nodes' own timers: the stack is older than this version"


def role(case: Ec2Case) -> Iterator[Verdict]:
    """Its role may start the sweeper, which that of an earlier version's stack may not."""
    name = case.resolved.options.scheduler_role
    principal = f"arn:aws:iam::{case.account}:role/{name}"
    if lacking := [action for right in RIGHTS for action in denied(case, principal, right)]:
        yield warning(
            f"{name} may not {', '.join(lacking)}, {OLDER}", f"{SET_UP} --region {stack_region(case) or case.region}"
        )
    else:
        yield ok(f"{name} may start {SWEEPER_DOCUMENT}")


def document(case: Ec2Case) -> Iterator[Verdict]:
    """The sweeper's document is there, and takes what a time limit passes it; AWS refuses unknown parameters."""
    fix = f"{SET_UP} --region {case.region}"
    try:
        found = case.aws.call("ssm", "DescribeDocument", {"Name": SWEEPER_DOCUMENT})["Document"]
    except AwsError as error:
        if error.aws_code != "InvalidDocument":  # its code for one that does not exist
            raise
        yield warning(
            f"there is no document {SWEEPER_DOCUMENT}, so time limits have no effect beyond the nodes' own timers",
            fix,
        )
        return
    if GRACE_MINUTES in {parameter["Name"] for parameter in found.get("Parameters", ())}:
        yield ok(f"{SWEEPER_DOCUMENT} takes what time limits pass it")
    else:
        yield warning(f"{SWEEPER_DOCUMENT} does not know {GRACE_MINUTES}, {OLDER}", fix)
