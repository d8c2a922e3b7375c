"""The roles of nodes, of time limits and of spot."""

from collections.abc import Iterator

from launch.aws.examination.case import Verdict, missing, ok
from launch.aws.examination.permissions import find_role, trusting
from launch.aws.lookup import SET_UP
from launch.aws.lookup import missing as with_remedy
from launch.core.errors import AwsError
from launch.ec2.examination.shared import Ec2Case

SPOT_ROLE = "AWSServiceRoleForEC2Spot"
MAKE_SPOT_ROLE = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"


def node(case: Ec2Case) -> Iterator[Verdict]:
    """The instance profile has a role, which EC2 may assume."""
    name = case.resolved.options.instance_profile
    try:
        profile = case.aws.call("iam", "GetInstanceProfile", {"InstanceProfileName": name})["InstanceProfile"]
    except AwsError as error:
        raise with_remedy(error, f"instance profile {name}", "--instance-profile") from error
    if not profile["Roles"]:
        yield missing(f"instance profile {name} has no role", SET_UP)
    for role in profile["Roles"]:
        yield trusting(case, role, ["ec2.amazonaws.com"], "node-trust")


def scheduler(case: Ec2Case) -> Iterator[Verdict]:
    """EventBridge starts the time limit in this role, whose trust is the sweeper's, too."""
    name = case.resolved.options.scheduler_role
    role = find_role(case, name, "--scheduler-role")
    yield trusting(case, role, ["scheduler.amazonaws.com", "ssm.amazonaws.com"], "scheduler-trust")


def spot(case: Ec2Case) -> Iterator[Verdict]:
    """EC2 makes this role for the first request for spot capacity, which few users may: so a launch would fail.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
    """
    if not case.resolved.options.spot:
        return
    try:
        case.aws.call("iam", "GetRole", {"RoleName": SPOT_ROLE})
    except AwsError as error:
        if error.aws_code != "NoSuchEntity":
            raise
        yield missing("the account has never used spot capacity", MAKE_SPOT_ROLE)
        return
    yield ok(SPOT_ROLE)
