"""What launcher and nodes must be allowed for a job on EC2."""

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
)
from launch.aws.examination.permissions import of_role, of_script
from launch.aws.machines import SCHEDULE_GROUP
from launch.aws.names import DATA_TAG, TOOLKIT
from launch.ec2.examination.shared import Ec2Case
from launch.ec2.names import LOG_GROUP, group_name

EC2 = "arn:aws:ec2:{REGION}:{ACCOUNT}:"
SCHEDULE = "arn:aws:scheduler:{REGION}:{ACCOUNT}:"
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
    Right(["ec2:TerminateInstances"], [f"{EC2}instance/*"], CARRIES),
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
    Right(["ec2:GetConsoleOutput"], [f"{EC2}instance/*"], CARRIES),  # explains a node that says nothing
    *JOB_FOLDER,
]  # fmt: skip

NODE = [
    Right(["ecr:GetAuthorizationToken"], ["*"]),
    Right(["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"], [REPOSITORY]),
    Right(["s3:GetObject"], [f"{FOLDER}cluster.json"], OWN_ACCOUNT),
    Right(["s3:PutObject"], [f"{FOLDER}run/x", f"{FOLDER}exits/x", f"{FOLDER}boot/x"], OWN_ACCOUNT),
    Right(["s3:ListBucket"], ["arn:aws:s3:::{BUCKET}"], {**OWN_ACCOUNT, "s3:prefix": "jobs/{JOB}/"}),
    Right(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{LOGS}{LOG_GROUP}:log-stream:x"]),
]


def names(case: Ec2Case) -> Mapping[str, str]:
    """The values of the {NAMES} that only these rights have."""
    options = case.resolved.options
    return {"NODE_ROLE": options.instance_profile, "SCHEDULER_ROLE": options.scheduler_role}


def of_node(case: Ec2Case) -> Iterator[Verdict]:
    name = case.resolved.options.instance_profile  # launch.infra gives both one name
    yield from of_role(case, name, [*NODE, *of_script(case, READS_SOURCE)], "node")
