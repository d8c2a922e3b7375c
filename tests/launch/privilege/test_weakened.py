"""Nothing in a policy could be left out unnoticed: without any condition, or any name, some attack would be granted.

That keeps the list of attacks complete: a new condition needs an attack that it refuses.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from launch.rehearse.aws.iam.policies import LAUNCHER, Need, Policy, allows, listed, policy
from tests.conftest import ROOT
from tests.launch.privilege.test_attacks import (
    ACCOUNT,
    ATTACKS,
    BLOCKS,
    BUCKET,
    CARD,
    COPY,
    DATA,
    DEADLINE,
    DIGEST,
    GROUP,
    JOB,
    ME,
    NODE,
    SHARED,
    SNAPSHOT,
    TAGGED,
    TO_EC2,
    TO_JOBS,
    TRAINING,
    V2,
    VOLUME,
    WHOLE,
    Row,
    arn,
    asked,
    ec2,
    may,
    new,
    on,
    role,
)  # fmt: skip

ONCE, ENCRYPTED = {"s3:if-none-match": "*"}, {"ec2:Encrypted": "true"}
PAYROLL = "arn:aws:s3:::payroll"
LOGS = arn("logs", "log-group:/payroll")
REPOSITORY = arn("ecr", "repository/payroll")
IN_VPC = {"sagemaker:VpcSubnets": ["subnet-REPLACE"], "sagemaker:VpcSecurityGroupIds": ["sg-REPLACE"]}


def without(key: str, context: dict[str, Any]) -> dict[str, Any]:
    assert any(name.endswith(key) for name in context)
    return {name: value for name, value in context.items() if not name.endswith(key)}


# A bucket of that name in another account, which is the attacker's.
ELSEWHERE = [
    Row(who, action, resource, {"s3:ResourceAccount": "999999999999", **context})
    for who, action, resource, context in (
        ("builder", "s3:PutObject", f"{BUCKET}/aws-ddp-toolkit-builds/0.zip", {}),
        ("builder", "s3:ListBucket", BUCKET, {"s3:prefix": "aws-ddp-toolkit-builds/0.zip"}),
        ("data", "s3:GetObject", f"{BUCKET}/jobs/j/job.json", {}),
        ("data", "s3:ListBucket", BUCKET, {}),
        ("image-builder", "s3:GetObject", f"{BUCKET}/aws-ddp-toolkit-builds/0.zip", {}),
        ("launcher", "s3:GetObject", f"{BUCKET}/jobs/j/job.json", {}),
        ("launcher", "s3:GetObject", SHARED, {}),
        ("launcher", "s3:ListBucket", BUCKET, {}),
        ("launcher", "s3:PutObject", SHARED, ONCE),
        ("publisher", "s3:GetObject", f"{BUCKET}/sources/a.tar", {}),
        ("publisher", "s3:GetObject", f"{BUCKET}/jobs/j/job.json", {}),
        ("publisher", "s3:PutObject", f"{BUCKET}/data/photos/0.tar", {}),
        ("publisher", "s3:ListBucket", BUCKET, {}),
        *(
            (who, action, resource, context)
            for who in ("node", "sagemaker")
            for action, resource, context in (
                ("s3:GetObject", f"{BUCKET}/jobs/j/job.json", {}),
                ("s3:ListBucket", BUCKET, {"s3:prefix": "jobs/j"}),
                ("s3:PutObject", f"{BUCKET}/jobs/j/run/model.pt", {}),
                ("s3:DeleteObject", f"{BUCKET}/jobs/j/run/model.pt", {}),
            )
        ),
        ("sagemaker", "s3:GetBucketLocation", BUCKET, {}),
    )
]

# Another bucket, repository, log or parameter of the same account.
BESIDE_OURS = [
    *(Row(who, "s3:ListBucket", PAYROLL) for who in ("data", "launcher", "publisher")),
    Row("builder", "s3:ListBucket", PAYROLL, {"s3:prefix": "aws-ddp-toolkit-builds/x"}),
    *(Row(who, "s3:ListBucket", PAYROLL, {"s3:prefix": "data/x"}) for who in ("node", "sagemaker")),
    *(Row(who, "s3:ListBucket", BUCKET, {"s3:prefix": ""}) for who in ("builder", "node", "sagemaker")),
    *(Row(who, "s3:GetObject", f"{PAYROLL}/x") for who in ("data", "image-builder", "launcher", "node", "publisher",
                                                           "sagemaker")),
    *(Row(who, "s3:PutObject", f"{PAYROLL}/x", ONCE) for who in ("builder", "data", "launcher", "publisher")),
    Row("image-builder", "s3:GetBucketAcl", PAYROLL),
    Row("sagemaker", "s3:GetBucketLocation", PAYROLL),
    *(Row(who, "ecr:BatchGetImage", REPOSITORY) for who in ("builder", "image-builder", "launcher", "node")),
    Row("sagemaker", "ecr:BatchGetImage", REPOSITORY, {"aws:ResourceAccount": ACCOUNT}),
    *(Row("sagemaker", "ecr:BatchGetImage", arn("ecr", f"repository/{name}"), {"aws:ResourceAccount": "999999999999"})
      for name in ("aws-ddp-toolkit", "pytorch-training")),
    Row("sagemaker", "ecr:BatchGetImage", REPOSITORY, {"aws:ResourceAccount": "763104351884"}),
    *(Row(who, "logs:FilterLogEvents", LOGS) for who in ("builder", "launcher")),
    Row("launcher", "logs:PutRetentionPolicy", LOGS),
    *(Row(who, "logs:PutLogEvents", f"{LOGS}:x") for who in ("image-builder", "node", "sagemaker")),
    Row("sagemaker", "cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "AWS/Billing"}),
    Row("sagemaker", "sagemaker-mlflow:GetRun", TRAINING, {"aws:ResourceAccount": ACCOUNT}),
    Row("sagemaker", "sagemaker-mlflow:GetRun", arn("sagemaker", "mlflow-tracking-server/x"),
        {"aws:ResourceAccount": "999999999999"}),
    Row("sagemaker", "ssm:GetParameter", arn("ssm", "parameter/payroll"), {"aws:ResourceAccount": ACCOUNT}),
    Row("sagemaker", "ssm:GetParameter", arn("ssm", "parameter/ddp-toolkit/x"),
        {"aws:ResourceAccount": "999999999999"}),
    Row("sagemaker", "secretsmanager:GetSecretValue", arn("secretsmanager", "secret:payroll"),
        {"aws:ResourceAccount": ACCOUNT}),
    *(Row(who, "ssm:GetParameter", arn("ssm", "parameter/payroll")) for who in ("data", "launcher")),
    Row("launcher", "cloudformation:DescribeStacks", arn("cloudformation", "stack/payroll/0123")),
    Row("launcher", "ecr:DescribeImages", REPOSITORY),
    Row("launcher", "iam:GetRole", role("admin")),
    Row("builder", "codebuild:StopBuild", arn("codebuild", "project/payroll")),
]  # fmt: skip

# A thing that lacks one of the tags.
MAKES = {
    "ec2:RunInstances": (NODE, V2), "ec2:CreateVolume": (VOLUME, ENCRYPTED), "ec2:CreateSecurityGroup": (GROUP, {}),
    "sagemaker:CreateTrainingJob": (TRAINING, {}),
}  # fmt: skip
HALF_TAGGED = [
    *(
        Row("launcher", action, resource, more)
        for action, (resource, more) in [*MAKES.items(), ("ec2:RunInstances", (CARD, {}))]
    ),
    Row("launcher-vpc", "sagemaker:CreateTrainingJob", TRAINING, IN_VPC),
    *(Row("launcher", action, resource) for action, resource in (
        ("ec2:RunInstances", GROUP), ("ec2:TerminateInstances", NODE), ("sagemaker:StopTrainingJob", TRAINING),
    )),
    *(
        Row(who, "ebs:StartSnapshot", SNAPSHOT, context)
        for who in ("data", "publisher")
        for context in (new(),)
    ),
    *(
        Row(who, action, SNAPSHOT, on(**dict.fromkeys({DATA, DIGEST, BLOCKS} - {lacks}, "x")))
        for who, action, needed in (
            ("data", "ebs:PutSnapshotBlock", (DATA, DIGEST)), ("data", "ec2:CopySnapshot", (DATA, DIGEST)),
            ("data", "ec2:DeleteSnapshot", (DATA, DIGEST, BLOCKS)),
            ("publisher", "ebs:PutSnapshotBlock", (DATA, DIGEST)),
            ("publisher", "ec2:DeleteSnapshot", (DATA, DIGEST, BLOCKS)),
        )
        for lacks in needed
    ),
    *(Row("data", "ec2:CopySnapshot", COPY, {**asked(one), **new()}) for one in (DATA, DIGEST)),
    *(
        Row(who, "ec2:CreateTags", SNAPSHOT, {**tags, **new(), "ec2:CreateAction": made})
        for who in ("data", "publisher")
        for tags, made in (({}, "StartSnapshot"), (asked(DATA), "CreateSnapshot"))
    ),
    *(
        Row("sweeper", "ec2:TerminateInstances", NODE, without(tag, {**TAGGED, **WHOLE}))
        for tag in (JOB, DEADLINE, "aws-ddp-toolkit:started", "aws-ddp-toolkit:bucket")
    ),
    Row("sweeper", "ec2:TerminateInstances", NODE, {**TAGGED, **WHOLE, **on(Name="prod-database")}),
]  # fmt: skip

# What a statement allows of one kind of thing, asked for another.
OF_ANOTHER_KIND = [
    *(
        Row("launcher", "ec2:RunInstances", thing, {**new(), **V2, **ENCRYPTED})
        for thing in (GROUP, ec2("image/ami-1"), ec2("snapshot/snap-1"), ec2("capacity-reservation/cr-1"))
    ),
    Row("launcher", "ec2:RunInstances", ec2("image/ami-1"), TAGGED),
    Row("launcher", "ec2:RunInstances", GROUP, {"ec2:Owner": "amazon"}),
    Row("launcher", "ec2:RunInstances", GROUP, on(**{DATA: "x"})),
    Row("launcher", "ec2:RunInstances", NODE, on(**{"aws-ddp-toolkit:allowed": "yes"})),
    Row("launcher", "ssm:StartSession", arn("ssm", "document/payroll"), {f"ssm:resourceTag/{JOB}": "j"}),
    Row("launcher", "s3:PutObject", f"{BUCKET}/data/photos/0.tar", ONCE),
    Row("launcher", "sagemaker:StopTrainingJob", arn("sagemaker", "endpoint/x"), TAGGED),
    *(
        Row("launcher-vpc", "sagemaker:CreateTrainingJob", TRAINING, {**new(), **IN_VPC, **context})
        for context in ({"sagemaker:VpcSubnets": ["subnet-prod"]}, {"sagemaker:VpcSecurityGroupIds": ["sg-prod"]})
    ),
    *(
        Row(who, "sagemaker:CreateTrainingJob", TRAINING, {**new(), **without(key, IN_VPC)})
        for who in ("launcher", "launcher-vpc")
        for key in ("VpcSubnets", "VpcSecurityGroupIds")
    ),
    Row("data", "iam:PassRole", role("aws-ddp-toolkit-publisher"), TO_JOBS),
    Row("sweeper", "iam:PassRole", role("aws-ddp-toolkit-sweeper"), TO_EC2),
    Row("sweeper", "iam:PassRole", role("admin"), {"iam:PassedToService": "ssm.amazonaws.com"}),
    Row("sagemaker-vpc", "ec2:CreateNetworkInterface", GROUP, {"ec2:Vpc": ec2("vpc/vpc-REPLACE")}),
]

# Who looks at everything, and who looks into training jobs.
TO_LOOK_AT = [
    Row("doctor", "scheduler:GetSchedule", arn("scheduler", "schedule/default/payroll")),
    Row("doctor", "ssm:DescribeDocument", arn("ssm", "document/payroll")),
    Row("doctor", "ecr:GetDownloadUrlForLayer", REPOSITORY),
    Row("doctor", "ebs:GetSnapshotBlock", SNAPSHOT, on(Name="payroll")),
    Row("doctor", "s3:GetEncryptionConfiguration", PAYROLL),
    Row("doctor", "s3:GetEncryptionConfiguration", BUCKET, {"s3:ResourceAccount": "999999999999"}),
    Row("doctor", "iam:GetRole", f"arn:aws:iam::{ACCOUNT}:user/ann"),
    Row("doctor", "iam:SimulatePrincipalPolicy", f"arn:aws:iam::{ACCOUNT}:group/staff"),
    Row("sagemaker-extras", "ssm:StartSession", NODE, {"ssm:resourceTag/aws:ssmmessages:target-id": "i-1"}),
    Row("sagemaker-extras", "sagemaker:CreateModelPackage", TRAINING),
]

FURTHER = [*ELSEWHERE, *BESIDE_OURS, *HALF_TAGGED, *OF_ANOTHER_KIND, *TO_LOOK_AT]
ADMINISTRATORS = {"administrator", "administrator-stack"}  # see tests/launch/infra/test_policies.py
# What is no policy of its own is a part of the launcher's.
WHO = sorted(
    {path.stem for path in (ROOT / "infra/iam").glob("*.json") if not path.stem.endswith("-trust")}
    - {*LAUNCHER[1:], *ADMINISTRATORS}
)


def named(statement: Policy) -> list[str]:
    """Its resources that are fewer than all; of most actions all things of a kind are all that there are."""
    resources = [one for one in listed(statement["Resource"]) if one != "*"]
    if "ec2:RunInstances" in listed(statement["Action"]):
        return resources
    return [one for one in resources if not re.fullmatch(r"arn:aws:[a-z0-9]+:\*:\*?:[a-z-]+/\*", one)]


def all_of_its_service(name: str) -> str:
    return ":".join([*name.split(":")[:3], "*"])


def weakened(whole: Policy) -> Iterator[tuple[str, Policy]]:
    """The policy without one of its conditions, or with a name that takes in all of its service; and which."""
    for place, statement in enumerate(whole["Statement"]):

        def with_(change: dict[str, Any], place: int = place, statement: Policy = statement) -> Policy:
            rows = [*whole["Statement"]]
            rows[place] = {**statement, **change}
            return {**whole, "Statement": rows}

        conditions = statement.get("Condition", {})
        for how, keys in conditions.items():
            for key in keys:
                kept = {**conditions, how: {name: value for name, value in keys.items() if name != key}}
                yield f"{statement['Sid']} without {how} {key}", with_({"Condition": kept})
        for one in named(statement):
            others = [other for other in listed(statement["Resource"]) if other != one]
            yield f"{statement['Sid']} on more than {one}", with_({"Resource": [*others, all_of_its_service(one)]})


def granted(row: Row, one: Policy) -> bool:
    """Whether `one`, with what its holder has beside it, grants it."""
    both = [policy("launcher"), one] if row.who == "launcher-vpc" else [one]
    known = {"aws:userid": ME, "aws:PrincipalAccount": ACCOUNT, "s3:ResourceAccount": ACCOUNT}
    return allows(both, Need(row.action, row.resource, {**known, **row.context}))


@pytest.mark.parametrize("attack", FURTHER, ids=lambda row: f"{row.who} {row.action} {row.resource.rpartition(':')[2]}")
def test_it_is_refused(attack: Row) -> None:
    assert not may(attack)


@pytest.mark.parametrize("who", WHO)
def test_no_condition_and_no_name_could_be_left_out(who: str) -> None:
    others = [] if who == "launcher" else policy("launcher")["Statement"]  # which the doctor has, too
    own = {"Statement": [statement for statement in policy(who)["Statement"] if statement not in others]}
    rows = [row for row in (*ATTACKS, *FURTHER) if row.who == who]

    unnoticed = [what for what, weaker in weakened(own) if not any(granted(row, weaker) for row in rows)]

    assert unnoticed == []
