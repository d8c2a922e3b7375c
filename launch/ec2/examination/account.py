"""Checks of what all jobs on EC2 share: logs, time limits, roles, and permissions."""

from collections.abc import Iterator, Mapping

from launch.aws.examination.case import (
    CARRIES,
    FOLDER,
    JOB_FOLDER,
    LOGS,
    NAME,
    OWN_ACCOUNT,
    READS_SOURCE,
    ROLE,
    TAGGED,
    Right,
    Verdict,
    missing,
    ok,
    warning,
)
from launch.aws.examination.permissions import denied, of_role, of_script, stack_region, trusting
from launch.aws.instances.inventory import find
from launch.aws.instances.requests import GRACE_MINUTES, SCHEDULE_GROUP
from launch.aws.lookup import SET_UP, describe_profile, describe_role
from launch.aws.names import DATA_TAG, FOR_EC2, SWEEPER_DOCUMENT, TOOLKIT, group_name, queue_name
from launch.core.errors import AwsError
from launch.core.price import usd
from launch.ec2 import leaks
from launch.ec2.backend import LOG_GROUP
from launch.ec2.examination.shared import Ec2Case
from launch.ec2.lookup import log_group_exists

SWEEPER = f"{TOOLKIT}-sweeper"


def log_group(case: Ec2Case) -> Iterator[Verdict]:
    yield ok(LOG_GROUP if log_group_exists(case.aws) else f"{LOG_GROUP}: the first job creates it")


def schedule_group(case: Ec2Case) -> Iterator[Verdict]:
    create = f"aws scheduler create-schedule-group --name {SCHEDULE_GROUP} --region {case.region}"
    try:
        state = case.aws.call("scheduler", "GetScheduleGroup", {"Name": SCHEDULE_GROUP})["State"]
    except AwsError as error:
        if error.aws_code != "ResourceNotFoundException":
            raise
        yield warning(f"there is no group {SCHEDULE_GROUP} for time limits; the first job creates it", create)
        return
    if state == "ACTIVE":
        yield ok(SCHEDULE_GROUP)
    else:
        yield missing(f"the group {SCHEDULE_GROUP} is {state}, so no time limit can be set", f"wait, then {create}")


def sweeper(case: Ec2Case) -> Iterator[Verdict]:
    fix = f"{SET_UP} --region {case.region}"
    try:
        state = case.aws.call("scheduler", "GetSchedule", {"Name": SWEEPER})["State"]
    except AwsError as error:
        if error.aws_code != "ResourceNotFoundException":
            raise
        yield warning(f"no schedule {SWEEPER}: nothing ends a node if its own timers fail", fix)
        return
    if state == "ENABLED":
        yield ok(SWEEPER)
    else:
        yield warning(f"{SWEEPER} is {state}", fix)


def left(case: Ec2Case) -> Iterator[Verdict]:
    found = leaks.leaks_of(find(case.aws), case.region, case.now)
    leaking = [one for one in found if one.is_leak]
    if leaking:
        cost = usd(sum(one.usd_per_hour for one in leaking))
        jobs = ", ".join(one.job for one in leaking[:3])
        noun = "job" if len(leaking) == 1 else "jobs"
        delete = f"python -m launch.ec2 leaks --delete --region {case.region}"
        yield warning(f"{len(leaking)} {noun} left resources ({jobs}): {cost} per hour", delete)
    else:
        yield ok(f"none; jobs within their time limit: {len(found)}")


# What the schedules' role must be allowed to do.
RIGHTS = [
    Right(["ssm:StartAutomationExecution"], [f"arn:aws:ssm:{{REGION}}:{{ACCOUNT}}:document/{SWEEPER_DOCUMENT}"]),
    Right(["iam:PassRole"], [f"{ROLE}{TOOLKIT}-sweeper"], {"iam:PassedToService": "ssm.amazonaws.com"}),
]
OLDER = "so time limits have no effect beyond the nodes' own timers: the stack is older than this version"


def role(case: Ec2Case) -> Iterator[Verdict]:
    """The schedules' role may start the sweeper; the role of an older stack may not."""
    name = case.resolved.options.scheduler_role
    principal = f"arn:aws:iam::{case.account}:role/{name}"
    if lacking := [action for right in RIGHTS for action in denied(case, principal, right)]:
        yield warning(
            f"{name} may not {', '.join(lacking)}, {OLDER}", f"{SET_UP} --region {stack_region(case) or case.region}"
        )
    else:
        yield ok(f"{name} may start {SWEEPER_DOCUMENT}")


def document(case: Ec2Case) -> Iterator[Verdict]:
    """The sweeper's document exists and accepts the parameters of a time limit; AWS rejects unknown ones."""
    fix = f"{SET_UP} --region {case.region}"
    try:
        found = case.aws.call("ssm", "DescribeDocument", {"Name": SWEEPER_DOCUMENT})["Document"]
    except AwsError as error:
        if error.aws_code != "InvalidDocument":  # AWS's code for a missing document
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


SPOT_ROLE = "AWSServiceRoleForEC2Spot"
MAKE_SPOT_ROLE = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"


def node(case: Ec2Case) -> Iterator[Verdict]:
    """The instance profile has a role that EC2 may assume."""
    name = case.resolved.options.instance_profile
    profile = describe_profile(case.aws, name, "--instance-profile")
    if not profile["Roles"]:
        yield missing(f"instance profile {name} has no role", SET_UP)
    for role in profile["Roles"]:
        yield trusting(case, role, ["ec2.amazonaws.com"], "node-trust")


def scheduler(case: Ec2Case) -> Iterator[Verdict]:
    """The role that EventBridge assumes for time limits; it has the same trust policy as the sweeper's."""
    name = case.resolved.options.scheduler_role
    role = describe_role(case.aws, name, "--scheduler-role")
    yield trusting(case, role, ["scheduler.amazonaws.com", "ssm.amazonaws.com"], "scheduler-trust")


def spot(case: Ec2Case) -> Iterator[Verdict]:
    """The service-linked role for spot.  EC2 creates it at the first spot request, which most users may not trigger.

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


EC2 = "arn:aws:ec2:{REGION}:{ACCOUNT}:"
SCHEDULE = "arn:aws:scheduler:{REGION}:{ACCOUNT}:"
AWSS_IMAGES = ["arn:aws:ecr:{REGION}:*:repository/pytorch", "arn:aws:ecr:{REGION}:*:repository/pytorch-training"]
REPOSITORY = f"arn:aws:ecr:{{REGION}}:{{ACCOUNT}}:repository/{TOOLKIT}"
SAFE = {**TAGGED, "ec2:MetadataHttpTokens": "required", "ec2:MetadataHttpPutResponseHopLimit": "1",
        "ec2:Encrypted": "true"}  # fmt: skip

LAUNCHER = [
    Right(["ec2:RunInstances"], [f"{EC2}instance/*", f"{EC2}volume/*", f"{EC2}network-interface/*"], SAFE),
    Right(["ec2:RunInstances"], [f"{EC2}subnet/*"]),
    Right(["ec2:RunInstances"], ["arn:aws:ec2:{REGION}::image/*"], {"ec2:Owner": "amazon"}),
    Right(["ec2:RunInstances"], ["arn:aws:ec2:{REGION}::snapshot/*"], {f"aws:ResourceTag/{DATA_TAG}": NAME}),
    Right(["ec2:CreateSecurityGroup"], [f"{EC2}security-group/*"], TAGGED),
    Right(["ec2:CreatePlacementGroup"], [f"{EC2}placement-group/*"], TAGGED),
    Right(["ec2:CreateTags"], [f"{EC2}instance/*"], {"ec2:CreateAction": "RunInstances", **TAGGED}),
    Right(["ec2:CreateTags", "ec2:TerminateInstances"], [f"{EC2}instance/*"], CARRIES),
    Right(
        ["ec2:AuthorizeSecurityGroupIngress", "ec2:AuthorizeSecurityGroupEgress", "ec2:RevokeSecurityGroupEgress",
         "ec2:DeleteSecurityGroup"], [f"{EC2}security-group/*"], CARRIES,
    ),
    Right(["ec2:DeletePlacementGroup"], [f"{EC2}placement-group/*"], CARRIES),
    Right(["iam:PassRole"], [f"{ROLE}{{NODE_ROLE}}"], {"iam:PassedToService": "ec2.amazonaws.com"}),
    Right(["iam:PassRole"], [f"{ROLE}{{SCHEDULER_ROLE}}"], {"iam:PassedToService": "scheduler.amazonaws.com"}),
    Right(
        ["scheduler:CreateSchedule", "scheduler:UpdateSchedule", "scheduler:DeleteSchedule"],
        [f"{SCHEDULE}schedule/{SCHEDULE_GROUP}/{group_name(NAME)}"],
    ),
    Right(["logs:FilterLogEvents"], [f"{LOGS}{LOG_GROUP}"]),
    Right(["ec2:DescribeInstanceStatus", "pricing:GetProducts"], ["*"]),
    Right(["ecr:BatchGetImage"], AWSS_IMAGES),
    Right(["ec2:GetConsoleOutput"], [f"{EC2}instance/*"], CARRIES),  # explains a node that never reported
    *JOB_FOLDER,
]  # fmt: skip

NODE = [
    Right(["ecr:GetAuthorizationToken"], ["*"]),
    Right(["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"], [REPOSITORY, *AWSS_IMAGES]),
    Right(["s3:GetObject"], [f"{FOLDER}cluster.json"], OWN_ACCOUNT),
    Right(["s3:PutObject"], [f"{FOLDER}run/x", f"{FOLDER}exits/x", f"{FOLDER}boot/x"], OWN_ACCOUNT),
    Right(["s3:ListBucket"], ["arn:aws:s3:::{BUCKET}"], {**OWN_ACCOUNT, "s3:prefix": "jobs/{JOB}/"}),
    Right(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{LOGS}{LOG_GROUP}:log-stream:x"]),
]


def names(case: Ec2Case) -> Mapping[str, str]:
    """The values of {NAMES} that only these permissions use."""
    options = case.resolved.options
    return {
        "NODE_ROLE": options.instance_profile,
        "SCHEDULER_ROLE": options.scheduler_role,
        "QUEUE": queue_name(options.queue or "", FOR_EC2),
    }


def of_node(case: Ec2Case) -> Iterator[Verdict]:
    name = case.resolved.options.instance_profile  # launch.infra gives both one name
    yield from of_role(case, name, [*NODE, *of_script(case, READS_SOURCE)], "node")
