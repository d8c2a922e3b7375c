"""What an attacker asks of AWS with each of our policies, and must not get; see SECURITY.md.

One row an attack: who asks, for what, on which resource, with which values of condition keys.  Each kind of attack has
a twin that is allowed, so that no row is refused for a slip of the pen.  Only of actions that a policy has: that it has
no others is shown by test_commands.py, test_roles.py, test_builder.py and test_data.py.
"""

from types import MappingProxyType
from typing import NamedTuple

import pytest

from launch.rehearse.aws.iam.policies import Context, Need, Policy, allows, policy

ACCOUNT, ME, YOU = "123456789012", "AIDAME", "AIDAYOU"
BUCKET = f"arn:aws:s3:::aws-ddp-toolkit-{ACCOUNT}-us-east-1"
OTHER_JOB = f"{BUCKET}/jobs/other"
SHARED = f"{BUCKET}/scripts/2026-11/0123/source.tar.gz"  # the source of a script
JOB, ALLOWED = "aws-ddp-toolkit:job", "aws-ddp-toolkit:allowed"
DEADLINE = "aws-ddp-toolkit:deadline"
YES = {ALLOWED: "yes"}


def ec2(thing: str) -> str:
    owner = "" if thing.startswith(("image/", "snapshot/")) else ACCOUNT
    return f"arn:aws:ec2:us-east-1:{owner}:{thing}"


def arn(service: str, thing: str) -> str:
    return f"arn:aws:{service}:us-east-1:{ACCOUNT}:{thing}"


def role(name: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:role/{name}"


def on(**more: str) -> dict[str, str]:
    """The tags of an existing thing."""
    return {f"aws:ResourceTag/{key}": value for key, value in more.items()}


def new() -> dict[str, str]:
    """The tags of a thing that is being made."""
    return {f"aws:RequestTag/{JOB}": "j"}


def asked(*tags: str) -> dict[str, str]:
    """Further tags of a thing that is being made."""
    return {f"aws:RequestTag/{tag}": "x" for tag in tags}


TAGGED = on(**{JOB: "j"})
UNTAGGED = on(Name="prod-database")
# What else a node has.
WHOLE = on(**{"Name": "aws-ddp-toolkit-other", DEADLINE: "2026-11-22T02:00:00Z", "aws-ddp-toolkit:bucket": "b",
              "aws-ddp-toolkit:started": "2026-11-21T14:00:00Z"})  # fmt: skip
V2 = {"ec2:MetadataHttpTokens": "required", "ec2:MetadataHttpPutResponseHopLimit": "1"}
TO_EC2, TO_SSM = {"iam:PassedToService": "ec2.amazonaws.com"}, {"iam:PassedToService": "ssm.amazonaws.com"}
TO_JOBS, TO_BUILDS = (
    {"iam:PassedToService": "sagemaker.amazonaws.com"},
    {"iam:PassedToService": "codebuild.amazonaws.com"},
)
TO_LIMITS = {"iam:PassedToService": "scheduler.amazonaws.com"}
NODE, VOLUME, GROUP, CARD, NEW_CARD = (
    ec2("instance/i-1"),
    ec2("volume/vol-1"),
    ec2("security-group/sg-1"),
    ec2("network-interface/eni-1"),
    ec2("network-interface/*"),
)
AWSS_DOCUMENTS = "arn:aws:ssm:us-east-1::document"
RESERVED = ec2("capacity-reservation/cr-1")
TRAINING = arn("sagemaker", "training-job/j")
SNAPSHOT, COPY = ec2("snapshot/snap-1"), ec2("snapshot/*")  # what is being made is a star to IAM
DATA, DIGEST, BLOCKS = "aws-ddp-toolkit:dataset", "aws-ddp-toolkit:digest", "aws-ddp-toolkit:blocks"
OWN, OTHERS = {"ec2:Owner": ACCOUNT}, {"ec2:Owner": "999999999999"}
PARENT = {"ebs:ParentSnapshot": ec2("snapshot/snap-payroll")}
VPC_IDS = {"sagemaker:VpcSubnets": ["subnet-prod"], "sagemaker:VpcSecurityGroupIds": ["sg-prod"]}
PROJECT, SOURCE = arn("codebuild", "project/aws-ddp-toolkit-images"), "codebuild:source"
BUILT = {f"{SOURCE}.location": f"aws-ddp-toolkit-{ACCOUNT}-us-east-1/aws-ddp-toolkit-builds/0123.zip"}

PENDING = {"sagemaker:ModelApprovalStatus": "PendingManualApproval"}
STAGED = {"sagemaker:ModelLifeCycle:Stage": "Production", "sagemaker:ModelLifeCycle:StageStatus": "Approved"}


class Row(NamedTuple):
    who: str
    action: str
    resource: str = "*"
    context: Context = MappingProxyType({})


# ---- a launcher against the account: copied tags, foreign groups, disks and images
THE_ACCOUNT = [
    *(
        Row("launcher", f"ec2:{action}", NODE, UNTAGGED)
        for action in ("TerminateInstances", "ModifyInstanceAttribute", "AttachVolume", "GetConsoleOutput")
    ),
    Row("launcher", "ec2:DeleteVolume", VOLUME, UNTAGGED),
    Row("launcher", "ec2:AttachVolume", VOLUME, UNTAGGED),
    *(
        Row("launcher", f"ec2:{action}", GROUP, UNTAGGED)
        for action in (
            "AuthorizeSecurityGroupIngress",
            "AuthorizeSecurityGroupEgress",
            "RevokeSecurityGroupEgress",
            "DeleteSecurityGroup",
        )
    ),
    Row("launcher", "ec2:DeleteNetworkInterface", CARD, UNTAGGED),
    Row("launcher", "ec2:DeletePlacementGroup", ec2("placement-group/p"), UNTAGGED),
    Row("launcher", "ssm:StartSession", NODE, {"ssm:resourceTag/Name": "prod-database"}),
    Row("launcher", "ssm:ResumeSession", arn("ssm", f"session/{YOU}-0123")),
    Row("launcher", "ssmmessages:OpenDataChannel", arn("ssm", f"session/{YOU}-0123")),
    Row("launcher", "sagemaker:StopTrainingJob", TRAINING, UNTAGGED),
    Row("launcher", "sagemaker:UpdateTrainingJob", TRAINING, UNTAGGED),
    Row("launcher", "sagemaker:CreateTrainingJob", TRAINING),
    Row("launcher", "ec2:CreateTags", NODE, {**new(), **on(Name="prod-database")}),  # tags it first
    Row("launcher", "ec2:CreateTags", NODE, {**new(), "ec2:CreateAction": "CreateImage"}),
    Row(  # a group of its own, open to everywhere, which no administrator has allowed
        "launcher",
        "ec2:CreateTags",
        GROUP,
        {**new(), f"aws:RequestTag/{ALLOWED}": "yes", "ec2:CreateAction": "CreateSecurityGroup"},
    ),
    Row("launcher", "sagemaker:AddTags", arn("sagemaker", "training-job/theirs"), new()),
    Row("launcher", "ec2:RunInstances", GROUP, on(Name="prod")),
    Row("launcher", "ec2:RunInstances", GROUP, on(**{ALLOWED: "no"})),
    # The tags of the new machine, if AWS showed them to IAM beside what the machine joins, must open no group.
    Row("launcher", "ec2:RunInstances", GROUP, {**on(Name="prod"), **new()}),
    Row("launcher", "ec2:ModifyInstanceAttribute", GROUP, on(Name="prod")),  # a node of one's own joins it later
    Row("launcher", "ec2:ModifyInstanceAttribute", GROUP, on(**YES)),
    Row("launcher", "ec2:RunInstances", ec2("image/ami-1"), {"ec2:Owner": "999999999999"}),
    Row("launcher", "ec2:RunInstances", RESERVED),  # machines that another team has paid for in advance
    Row("launcher", "ec2:RunInstances", RESERVED, {**TAGGED, **new()}),
    Row("launcher", "ec2:RunInstances", RESERVED, on(**{ALLOWED: "no"})),
    # A Dedicated Host, which somebody pays for whatever runs on it: no resource to IAM, which knows the tenancy.
    Row("launcher", "ec2:RunInstances", NODE, {**new(), **V2, "ec2:Tenancy": "host"}),
    # A free interface of the account's, with groups of its own, beside a new one whose tags are in the request.
    Row("launcher", "ec2:RunInstances", CARD, {**new(), "ec2:NetworkInterfaceID": "eni-1"}),
    Row("launcher", "ec2:RunInstances", CARD, {**on(Name="prod"), **new(), "ec2:NetworkInterfaceID": "eni-1"}),
    *(  # with the tags of what is made, and without
        Row("launcher", "ec2:RunInstances", thing, context)
        for thing in (
            ec2("launch-template/lt-1"),
            ec2("key-pair/admin"),
            ec2("secondary-subnet/s-1"),
            arn("license-manager", "license-configuration:lic-1"),
            arn("resource-groups", "group/reserved-for-payroll"),
        )
        for context in (new(), {**on(Name="prod"), **new()})
    ),
    # What others have reserved of SageMaker: each is a resource of CreateTrainingJob.
    *(
        Row("launcher", "sagemaker:CreateTrainingJob", arn("sagemaker", thing), new())
        for thing in ("training-plan/payroll", "reserved-capacity/payroll")
    ),
    Row("launcher", "ec2:RunInstances", ec2("snapshot/snap-1"), on(Name="payroll")),
    Row("launcher", "ec2:CreateVolume", ec2("snapshot/snap-1"), on(Name="payroll")),
    Row(
        "launcher",
        "ec2:RunInstances",
        NODE,
        {**new(), "ec2:MetadataHttpTokens": "optional", "ec2:MetadataHttpPutResponseHopLimit": "1"},
    ),
    Row("launcher", "ec2:RunInstances", NODE, {**new(), **V2, "ec2:MetadataHttpPutResponseHopLimit": "64"}),
    Row("launcher", "ec2:RunInstances", NODE, new()),
    Row("launcher", "ec2:RunInstances", VOLUME, {**new(), "ec2:Encrypted": "false"}),
    Row("launcher", "ec2:CreateVolume", VOLUME, {**new(), "ec2:Encrypted": "false"}),
    Row("launcher", "ec2:RunInstances", NODE, V2),
    Row("launcher", "sagemaker:CreateTrainingJob", TRAINING, {**new(), **VPC_IDS}),  # into a network
    Row("launcher-vpc", "sagemaker:CreateTrainingJob", TRAINING, {**new(), **VPC_IDS}),  # into another than allowed
    Row(
        "launcher-vpc",
        "sagemaker:CreateTrainingJob",
        TRAINING,
        {
            **new(),
            "sagemaker:VpcSubnets": ["subnet-REPLACE"],
            "sagemaker:VpcSecurityGroupIds": ["sg-REPLACE", "sg-prod"],
        },
    ),
    Row("launcher", "s3:PutObject", f"{BUCKET}/data/imagenet/train/0.jpg"),
    Row("launcher", "s3:GetObject", "arn:aws:s3:::payroll/jobs/j/job.json"),
    Row("launcher", "s3:ListBucket", "arn:aws:s3:::payroll"),
    Row("launcher", "logs:FilterLogEvents", arn("logs", "log-group:/aws/lambda/payroll")),
    Row("launcher", "s3:PutObject", f"{BUCKET}/jobs/j/job.json", {"s3:ResourceAccount": "999999999999"}),
    # The source of a script is written once, and then by nobody, whatever the header.
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes-enforce.html
    *(Row("launcher", "s3:PutObject", SHARED, context) for context in ({}, {"s3:if-match": "etag"})),
    Row("launcher", "ssm:GetParameter", arn("ssm", "parameter/ddp-toolkit/wandb")),
    # Of image builds; and a group that is there before the stack's own would end the administrator's `up`.
    *(
        Row("launcher", f"logs:{action}", arn("logs", "log-group:/aws-ddp-toolkit/images"))
        for action in ("CreateLogGroup", "FilterLogEvents", "PutRetentionPolicy")
    ),
]

# ---- escalation: roles, documents, schedules, builds
ESCALATION = [
    *(
        Row("launcher", "iam:PassRole", role(name), to)
        for name, to in (
            ("admin", TO_EC2),
            ("admin", TO_JOBS),
            ("admin", TO_LIMITS),
            ("admin", TO_BUILDS),
            ("aws-ddp-toolkit-scheduler", TO_EC2),
            ("aws-ddp-toolkit-sweeper", TO_LIMITS),
            ("aws-ddp-toolkit-sweeper", TO_SSM),
            ("aws-ddp-toolkit-image-builder", TO_BUILDS),
            ("aws-ddp-toolkit-node", TO_JOBS),
            ("aws-ddp-toolkit-sagemaker", TO_EC2),
        )
    ),
    *(
        Row("builder", f"codebuild:{action}", arn("codebuild", "project/payroll"), BUILT)
        for action in ("StartBuild", "StopBuild", "BatchGetBuilds")
    ),
    Row("builder", "logs:FilterLogEvents", arn("logs", "log-group:/aws-ddp-toolkit/ec2")),
    Row("builder", "s3:PutObject", f"{BUCKET}/jobs/j/job.json"),
    *(Row("builder", "s3:ListBucket", BUCKET, context) for context in ({"s3:prefix": "jobs/"}, {})),
    Row("image-builder", "s3:GetObject", f"{BUCKET}/jobs/j/job.json"),
    *(
        Row("image-builder", "ecr:PutImage", arn("ecr", f"repository/{name}"))
        for name in ("aws-ddp-toolkit-mine", "pytorch-training")
    ),
    Row("image-builder", "logs:PutLogEvents", arn("logs", "log-group:/aws-ddp-toolkit/ec2:log-stream:1")),
    # A private repository, read with a token for Git that the account's administrator has given to all of CodeBuild:
    # https://docs.aws.amazon.com/codebuild/latest/userguide/access-tokens.html.  The keys are those of
    # https://docs.aws.amazon.com/codebuild/latest/userguide/action-context-keys.html
    *(
        Row("builder", "codebuild:StartBuild", PROJECT, context)
        for context in (
            {},
            {f"{SOURCE}.location": "https://github.com/company/payroll"},
            {f"{SOURCE}.location": "codepipeline-eu/payroll/source.zip"},
            {**BUILT, "codebuild:secondarySources": "true"},
            {**BUILT, f"{SOURCE}.auth.type": "CODECONNECTIONS"},
            {
                **BUILT,
                "codebuild:environment.fleet.fleetArn": arn("codebuild", "fleet/payroll:1"),
            },  # somebody's machines
        )
    ),
    # A version of a model that others deploy as soon as it is approved, and is, in either of two ways.
    # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateModelPackage.html
    *(
        Row("sagemaker-extras", f"sagemaker:{action}", arn("sagemaker", thing), context)
        for action, context in (
            ("CreateModelPackage", {"sagemaker:ModelApprovalStatus": "Approved"}),
            *(("CreateModelPackage", {**PENDING, key: value}) for key, value in STAGED.items()),
            ("CreateModelPackage", STAGED),
            ("CreateModelPackage", {}),  # without versions, which nobody has to approve
            ("UpdateModelPackage", {"sagemaker:ModelApprovalStatus": "Approved"}),
            ("UpdateModelPackage", PENDING),
            ("DeleteModelPackage", {}),
            ("PutModelPackageGroupPolicy", {}),
        )
        for thing in ("model-package-group/payroll", "model-package/payroll/7")
    ),
    Row("builder", "ecr:PutImage", arn("ecr", "repository/payroll")),
    # To what a node reaches, such as a database: https://docs.aws.amazon.com/systems-manager/latest/userguide/
    # session-manager-working-with-sessions-start.html#sessions-remote-port-forwarding
    Row("launcher", "ssm:StartSession", f"{AWSS_DOCUMENTS}/AWS-StartPortForwardingSessionToRemoteHost"),
    Row("launcher", "ssm:StartSession", arn("ssm", "document/AWS-StartInteractiveCommand")),
    Row("launcher", "scheduler:CreateSchedule", arn("scheduler", "schedule/default/mine")),
    Row("launcher", "scheduler:DeleteSchedule", arn("scheduler", "schedule/default/aws-ddp-toolkit-sweeper")),
    Row("launcher", "scheduler:UpdateSchedule", arn("scheduler", "schedule/default/backup")),
    *(
        Row("scheduler", "iam:PassRole", role(name), to)
        for name, to in (("admin", TO_SSM), ("aws-ddp-toolkit-node", TO_SSM), ("aws-ddp-toolkit-sweeper", TO_EC2))
    ),
    Row("scheduler", "ssm:StartAutomationExecution", arn("ssm", "automation-definition/AWS-RunShellScript:1")),
    # A launcher makes schedules with any target, so what their role may do, each launcher may do to all others.
    Row("scheduler", "ssm:StartAutomationExecution", arn("ssm", "document/AWS-TerminateEC2Instance")),
    Row("scheduler", "ssm:StartAutomationExecution", arn("ssm", "automation-definition/AWS-TerminateEC2Instance:1")),
    # A document of the sweeper's name that a launcher shares from another account, with anything in it, to be run in
    # the sweeper's role.  DocumentName takes "a shared document belonging to another account" by its ARN:
    # https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_StartAutomationExecution.html
    *(
        Row(who, "ssm:StartAutomationExecution", f"arn:aws:ssm:us-east-1:999999999999:{thing}")
        for who in ("scheduler", "sweeper")
        for thing in ("document/ddp-toolkit-sweeper", "automation-definition/ddp-toolkit-sweeper:1")
    ),
    Row("launcher", "scheduler:CreateScheduleGroup", arn("scheduler", "schedule-group/mine")),
    Row("launcher", "ec2:CreateTags", GROUP, {**TAGGED, f"aws:RequestTag/{ALLOWED}": "yes"}),
    Row("launcher", "ec2:CreateTags", ec2("snapshot/snap-1"), {**on(Name="payroll"), **asked(DATA)}),
    Row("sweeper", "ec2:TerminateInstances", NODE, {**TAGGED, **on(**{DEADLINE: "2020-01-01T00:00:00Z"})}),
    Row("image-builder", "ecr:PutImage", arn("ecr", "repository/payroll")),
]

# ---- who may publish data sets against everything else
PUBLISHERS = [
    Row("data", "ec2:DeleteSnapshot", ec2("snapshot/snap-1"), on(**{DATA: "imagenet"})),  # made by hand
    Row("data", "ec2:CreateTags", ec2("snapshot/snap-1"), {**on(Name="payroll"), **asked(DATA)}),  # tags it first
    Row("data", "ec2:CreateTags", NODE, {**asked(DATA), "ec2:CreateAction": "StartSnapshot"}),
    # The source counts by its owner, the copy by its tags:
    # https://docs.aws.amazon.com/ebs/latest/userguide/security_iam_id-based-policy-examples.html#iam-copy-snapshot
    Row("data", "ec2:CopySnapshot", SNAPSHOT, {}),
    Row("data", "ec2:CopySnapshot", SNAPSHOT, {**OTHERS, **asked(DATA, DIGEST), **new()}),
    Row("data", "ec2:CopySnapshot", COPY, {**OWN, **asked(DATA), **new()}),  # a copy without a digest
    Row("data", "ec2:CopySnapshot", COPY, OWN),
    Row("data", "ebs:PutSnapshotBlock", SNAPSHOT, on(Name="payroll")),
    *(
        Row(who, action, resource, context)
        for who in ("data", "publisher")
        for action, resource, context in (
            ("s3:PutObject", f"{BUCKET}/jobs/j/job.json", {}),
            ("s3:GetObject", f"{BUCKET}/jobs/j/run/model.pt", {}),
            ("s3:GetObject", "arn:aws:s3:::payroll/sources/salaries.csv", {}),
            ("ec2:DeleteSnapshot", SNAPSHOT, on(Name="payroll")),
            ("ebs:GetSnapshotBlock", SNAPSHOT, on(Name="payroll")),
            ("ebs:ListSnapshotBlocks", SNAPSHOT, on(Name="payroll")),
            ("ebs:StartSnapshot", SNAPSHOT, {}),
            # One that begins with another's blocks, to read them:
            # https://docs.aws.amazon.com/ebs/latest/userguide/writesnapshots.html
            ("ebs:StartSnapshot", SNAPSHOT, {**asked(DATA), **new(), **PARENT}),
        )
    ),
    Row("publisher", "s3:PutObject", f"{BUCKET}/sources/photos/0.jpg"),
    Row("data", "s3:PutObject", f"{BUCKET}/aws-ddp-toolkit-builds/0.zip"),  # what a build would run
    Row("data", "s3:PutObject", f"{BUCKET}/data/imagenet/manifest.json", {"s3:ResourceAccount": "999999999999"}),
    Row("data", "iam:PassRole", role("aws-ddp-toolkit-node"), TO_EC2),
]

# ---- a node and a training against the account and its other jobs
FROM_INSIDE = [
    *(
        Row(who, action, resource, context)
        for who in ("node", "sagemaker")
        for action, resource, context in (
            ("s3:PutObject", f"{OTHER_JOB}/job.json", {}),
            ("s3:PutObject", f"{OTHER_JOB}/cluster.json", {}),
            ("s3:PutObject", f"{OTHER_JOB}/outcome.json", {}),
            ("s3:DeleteObject", f"{OTHER_JOB}/exits/i-1.json", {}),
            ("s3:PutObject", f"{BUCKET}/data/imagenet/train/0.jpg", {}),
            ("s3:PutObject", f"{BUCKET}/images/context.tar", {}),  # what a build would run
            ("s3:PutObject", f"{OTHER_JOB}/source/0123/sourcedir.tar.gz", {"s3:if-none-match": "*"}),
            ("s3:PutObject", SHARED, {"s3:if-none-match": "*"}),
            ("s3:GetObject", "arn:aws:s3:::payroll/jobs/j/job.json", {}),
            ("s3:ListBucket", BUCKET, {"s3:prefix": "exports/"}),
            ("s3:ListBucket", BUCKET, {}),
            ("logs:PutLogEvents", arn("logs", "log-group:/aws/lambda/payroll:log-stream:s"), {}),
            ("s3:DeleteObject", SHARED, {}),
            ("ssm:GetParameter", arn("ssm", "parameter/payroll/password"), {}),
            ("secretsmanager:GetSecretValue", arn("secretsmanager", "secret:payroll-Ab1Cd2"), {}),
        )
    ),
    Row("sagemaker-vpc", "ec2:CreateNetworkInterface", ec2("subnet/subnet-prod"), on(Name="prod")),
    Row("sagemaker-vpc", "ec2:CreateNetworkInterface", GROUP, on(Name="prod")),
    Row("sagemaker-vpc", "ec2:CreateNetworkInterface", GROUP, on(**{ALLOWED: "no"})),
    # Lends a free interface, and the groups that it has, to a stranger's account, or takes it away; also of this VPC.
    # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateNetworkInterfacePermission.html
    *(
        Row("sagemaker-vpc", f"ec2:{action}", CARD, {"ec2:Vpc": ec2(vpc), "ec2:Subnet": ec2("subnet/subnet-prod")})
        for action in (
            "CreateNetworkInterfacePermission",
            "DeleteNetworkInterface",
            "DeleteNetworkInterfacePermission",
        )
        for vpc in ("vpc/vpc-prod", "vpc/vpc-REPLACE")
    ),
]

# ---- the function of --notify, which reads what nodes and launchers write, and sends it away
NOTIFIER = [
    *(
        Row("notify", "s3:GetObject", thing)
        for thing in (f"{OTHER_JOB}/run/model.pt", f"{OTHER_JOB}/job.json", SHARED, "arn:aws:s3:::payroll/notify.json")
    ),
    Row("notify", "s3:GetObject", f"{BUCKET}/notify.json", {"s3:ResourceAccount": "999999999999"}),
    *(Row("notify", "s3:PutObject", f"{OTHER_JOB}/{file}") for file in ("outcome.json", "exits/i-1.json")),
    Row("notify", "logs:FilterLogEvents", arn("logs", "log-group:/aws/lambda/payroll")),
    Row("notify", "logs:PutLogEvents", arn("logs", "log-group:/aws-ddp-toolkit/ec2:log-stream:j/node-0")),
    Row("notify", "ssm:GetParameter", arn("ssm", "parameter/payroll/password")),
    Row("notify", "sns:Publish", arn("sns", "alarms")),
    Row("notify", "lambda:InvokeFunction", arn("lambda", "function:payroll")),
    Row("launcher", "scheduler:DeleteSchedule", arn("scheduler", "schedule/default/aws-ddp-toolkit-notify")),
    # It would end all messages, or repeat them.
    *(
        Row(who, "s3:PutObject", f"{BUCKET}/notify.json")
        for who in ("node", "sagemaker", "launcher", "builder", "data")
    ),
]

ATTACKS = [*THE_ACCOUNT, *ESCALATION, *PUBLISHERS, *FROM_INSIDE, *NOTIFIER]

# What the same people do every day.
TWINS = [
    Row("launcher", "ec2:TerminateInstances", NODE, TAGGED),
    Row("launcher", "ec2:DeleteVolume", VOLUME, TAGGED),
    Row("launcher", "ec2:RunInstances", GROUP, TAGGED),
    Row("launcher", "ec2:RunInstances", GROUP, on(**YES)),
    Row("launcher", "ec2:RunInstances", NODE, {**new(), **V2}),
    Row("launcher", "ec2:RunInstances", NODE, {**new(), **V2, "ec2:Tenancy": "default"}),
    Row("launcher", "ec2:RunInstances", NEW_CARD, new()),
    Row("launcher", "ec2:RunInstances", NEW_CARD, {**new(), "ec2:NetworkInterfaceID": "*"}),
    Row("launcher", "ec2:RunInstances", VOLUME, {**new(), "ec2:Encrypted": "true"}),
    Row("launcher", "ec2:RunInstances", ec2("image/ami-1"), {"ec2:Owner": "amazon"}),
    Row("launcher", "ec2:RunInstances", RESERVED, on(**YES)),
    Row("launcher", "ec2:CreateTags", NODE, {**new(), "ec2:CreateAction": "RunInstances"}),
    Row("launcher", "ec2:CreateTags", GROUP, {**new(), "ec2:CreateAction": "CreateSecurityGroup"}),
    Row("launcher", "ec2:CreateTags", NODE, {**new(), **TAGGED}),
    Row("launcher", "ssm:StartSession", NODE, {f"ssm:resourceTag/{JOB}": "j"}),
    Row("launcher", "ssm:StartSession", f"{AWSS_DOCUMENTS}/SSM-SessionManagerRunShell"),
    Row("launcher", "ssm:StartSession", f"{AWSS_DOCUMENTS}/AWS-StartPortForwardingSession"),
    Row("launcher", "ssm:ResumeSession", arn("ssm", f"session/{ME}-0123")),
    Row("launcher", "sagemaker:CreateTrainingJob", TRAINING, new()),
    Row("launcher", "sagemaker:StopTrainingJob", TRAINING, TAGGED),
    Row(
        "launcher-vpc",
        "sagemaker:CreateTrainingJob",
        TRAINING,
        {**new(), "sagemaker:VpcSubnets": ["subnet-REPLACE"], "sagemaker:VpcSecurityGroupIds": ["sg-REPLACE"]},
    ),
    Row("launcher", "iam:PassRole", role("aws-ddp-toolkit-node"), TO_EC2),
    Row("launcher", "scheduler:CreateSchedule", arn("scheduler", "schedule/aws-ddp-toolkit/aws-ddp-toolkit-j")),
    Row("launcher", "s3:PutObject", f"{BUCKET}/jobs/j/job.json", {"s3:ResourceAccount": ACCOUNT}),
    Row("launcher", "s3:PutObject", f"{BUCKET}/jobs/j/source/0123/sourcedir.tar.gz", {"s3:if-none-match": "*"}),
    Row("launcher", "s3:PutObject", SHARED, {"s3:if-none-match": "*", "s3:ResourceAccount": ACCOUNT}),
    *(Row(who, "s3:GetObject", SHARED, {"s3:ResourceAccount": ACCOUNT}) for who in ("launcher", "node", "sagemaker")),
    Row("builder", "codebuild:StartBuild", PROJECT, BUILT),
    *(
        Row("sagemaker-extras", "sagemaker:CreateModelPackage", arn("sagemaker", thing), PENDING)
        for thing in ("model-package-group/mine", "model-package/mine/1")
    ),
    Row("data", "s3:PutObject", f"{BUCKET}/data/photos/manifest.json"),
    Row("data", "ebs:StartSnapshot", SNAPSHOT, {**asked(DATA), **new()}),
    Row("publisher", "ebs:StartSnapshot", SNAPSHOT, {**asked(DATA), **new()}),
    Row("data", "ec2:CreateTags", SNAPSHOT, {**asked(DATA), **new(), "ec2:CreateAction": "StartSnapshot"}),
    Row("publisher", "ec2:CreateTags", SNAPSHOT, {**asked(DATA), **new(), "ec2:CreateAction": "StartSnapshot"}),
    Row("data", "ebs:PutSnapshotBlock", SNAPSHOT, on(**{DATA: "photos", DIGEST: "0"})),
    Row("data", "ec2:CopySnapshot", SNAPSHOT, OWN),  # from it
    Row("data", "ec2:CopySnapshot", COPY, {**asked(DATA, DIGEST), **new()}),  # to a new one
    Row("data", "ec2:DeleteSnapshot", SNAPSHOT, on(**{DATA: "photos", DIGEST: "0", BLOCKS: "0"})),
    Row("scheduler", "iam:PassRole", role("aws-ddp-toolkit-sweeper"), TO_SSM),
    Row("scheduler", "ssm:StartAutomationExecution", arn("ssm", "document/ddp-toolkit-sweeper")),
    Row("scheduler", "ssm:StartAutomationExecution", arn("ssm", "automation-definition/ddp-toolkit-sweeper:$DEFAULT")),
    Row("sweeper", "ssm:StartAutomationExecution", arn("ssm", "document/ddp-toolkit-sweeper")),
    Row("sweeper", "ec2:TerminateInstances", NODE, {**TAGGED, **WHOLE}),
    *(
        Row("notify", "s3:GetObject", f"{BUCKET}/{key}")
        for key in ("jobs/j/outcome.json", "jobs/j/exits/i-1.json", "notify.json")
    ),
    Row("notify", "s3:PutObject", f"{BUCKET}/notify.json"),
    *(
        Row("notify", "logs:FilterLogEvents", arn("logs", f"log-group:{name}"))
        for name in ("/aws-ddp-toolkit/ec2", "/aws/sagemaker/TrainingJobs")
    ),
    Row("notify", "logs:PutLogEvents", arn("logs", "log-group:/aws-ddp-toolkit/notify:log-stream:1")),
    Row("notify", "ssm:GetParameter", arn("ssm", "parameter/ddp-toolkit/webhook")),
    Row("notify", "sns:Publish", arn("sns", "aws-ddp-toolkit-notify")),
    Row("notify", "lambda:InvokeFunction", arn("lambda", "function:aws-ddp-toolkit-notify")),
    Row("node", "s3:PutObject", f"{BUCKET}/jobs/j/run/model.pt", {"s3:ResourceAccount": ACCOUNT}),
    Row("sagemaker-vpc", "ec2:CreateNetworkInterface", ec2("subnet/subnet-1"), on(**YES)),
    Row("sagemaker-vpc", "ec2:CreateNetworkInterface", NEW_CARD),  # of which IAM knows neither VPC nor subnet
    *(
        Row("sagemaker-vpc", f"ec2:{action}", CARD, {"ec2:Subnet": ec2("subnet/subnet-REPLACE")})
        for action in ("CreateNetworkInterfacePermission", "DeleteNetworkInterface", "DeleteNetworkInterfacePermission")
    ),
]


def policies(who: str) -> list[Policy]:
    return [policy("launcher"), policy(who)] if who == "launcher-vpc" else [policy(who)]


def may(row: Row) -> bool:
    known = {"aws:userid": ME, "aws:PrincipalAccount": ACCOUNT, "s3:ResourceAccount": ACCOUNT}
    return allows(policies(row.who), Need(row.action, row.resource, {**known, **row.context}))


def test_attacks_are_refused() -> None:
    assert [attack for attack in ATTACKS if may(attack)] == []


def test_what_one_does_every_day_is_allowed() -> None:
    assert [row for row in TWINS if not may(row)] == []


def test_only_its_service_takes_a_role_on() -> None:
    for name, service in (("node", "ec2"), ("sagemaker", "sagemaker")):
        (statement,) = policy(f"{name}-trust")["Statement"]
        assert statement["Principal"] == {"Service": f"{service}.amazonaws.com"}
        assert statement["Action"] == "sts:AssumeRole"


@pytest.mark.parametrize("name", ["scheduler", "image-builder", "notify"])
def test_a_role_is_taken_on_for_this_account_only(name: str) -> None:
    """EC2 names no source when it takes on a role for an instance, and gives it only to instances of the role's
    account.
    """
    *_, statement = policy(f"{name}-trust")["Statement"]
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": "@ACCOUNT@"}


def test_sagemaker_takes_its_role_on_by_the_jobs_arn_which_has_the_account() -> None:
    """And by nothing else: https://docs.aws.amazon.com/sagemaker/latest/dg/security-confused-deputy-prevention.html"""
    (statement,) = policy("sagemaker-trust")["Statement"]
    assert statement["Condition"] == {"ArnLike": {"aws:SourceArn": "arn:aws:sagemaker:*:@ACCOUNT@:*"}}
