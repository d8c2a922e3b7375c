"""Least privilege of roles: nodes, time limits and SageMaker's training jobs."""

import json
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
from moto import mock_aws
from moto.sagemaker.exceptions import SagemakerClientError

from launch.aws.names import tag_values, tags
from launch.rehearse.aws.iam.needs import AccountView, needs
from launch.rehearse.aws.iam.policies import Need, actions, allows, policy
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.refusals import check_role
from tests.launch.faults import Request

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
VIEW = AccountView("123456789012", "us-east-1", lambda _name: {}, lambda _profile: [])
BUCKET = "aws-ddp-toolkit-123456789012-us-east-1"
RUN, GROUP = "jobs/j/run/checkpoints/best.pt", "/aws-ddp-toolkit/ec2"
STREAM = {"logGroupName": GROUP, "logStreamName": "j/node-0"}

# What infra/ec2/boot.sh asks for, with its docker's log driver: rehearsals show that this is all, see
# tests/launch/rehearse/ec2/test_undisturbed.py.
BOOT = [
    Request("s3", "HeadObject", {"Bucket": BUCKET, "Key": "jobs/j/cluster.json"}),
    Request("s3", "GetObject", {"Bucket": BUCKET, "Key": "jobs/j/cluster.json"}),
    Request("s3", "ListObjectsV2", {"Bucket": BUCKET, "Prefix": "jobs/j/run/"}),
    Request("s3", "ListObjectsV2", {"Bucket": BUCKET, "Prefix": "jobs/j/run"}),
    Request("s3", "GetObject", {"Bucket": BUCKET, "Key": RUN}),
    Request("s3", "PutObject", {"Bucket": BUCKET, "Key": RUN}),
    Request("s3", "UploadPart", {"Bucket": BUCKET, "Key": RUN}),
    Request("s3", "AbortMultipartUpload", {"Bucket": BUCKET, "Key": RUN}),
    Request("s3", "DeleteObject", {"Bucket": BUCKET, "Key": RUN}),
    Request("s3", "PutObject", {"Bucket": BUCKET, "Key": "jobs/j/boot/i-1.log"}),
    Request("s3", "PutObject", {"Bucket": BUCKET, "Key": "jobs/j/exits/i-1.json"}),
    Request("s3", "ListObjectsV2", {"Bucket": BUCKET, "Prefix": "data/imagenet/"}),  # --data-s3
    Request("s3", "GetObject", {"Bucket": BUCKET, "Key": "data/imagenet/train/0.jpg"}),
    Request("ecr", "GetAuthorizationToken", {}),
    Request("logs", "CreateLogStream", STREAM),
    Request("logs", "PutLogEvents", STREAM),
]
# Grants beyond that, and why they are there.
ARGUED = {
    "node": {
        "ecr:BatchCheckLayerAvailability": "docker pull, as AWS documents it: there is no registry in the tests",
        "ecr:BatchGetImage": "the same",
        "ecr:GetDownloadUrlForLayer": "the same",
        "ssm:UpdateInstanceInformation": "Session Manager's agent, which says that it is there: AWS's least policy for "
        "`ssh`, https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-create-iam-instance-"
        "profile.html.  The other actions of its own take no resource and no condition that would say more",
        "ssmmessages:CreateControlChannel": "the same, which waits for somebody to open a shell",
        "ssmmessages:OpenControlChannel": "the same",
        "ssmmessages:CreateDataChannel": "the same, for the shell itself",
        "ssmmessages:OpenDataChannel": "the same",
    },
    "scheduler": {
        "ssm:StartAutomationExecution": "what EventBridge calls at the time limit: the sweeper, and nothing else",
        "iam:PassRole": "who starts a document that names a role must be allowed to pass that role",
    },
    "sagemaker": {
        "cloudwatch:PutMetricData": "SageMaker's documented execution role, as all that follows: metrics",
        "ecr:BatchCheckLayerAvailability": "the image, pulled in the role's name",
        "ecr:BatchGetImage": "the same",
        "ecr:GetAuthorizationToken": "the same",
        "ecr:GetDownloadUrlForLayer": "the same",
        "logs:CreateLogGroup": "what the containers say",
        "logs:CreateLogStream": "the same",
        "logs:DescribeLogStreams": "the same",
        "logs:PutLogEvents": "the same",
        "s3:AbortMultipartUpload": "checkpoints and results that are large",
        "s3:DeleteObject": "checkpoints that the trainer deleted, in the copy",
        "s3:GetBucketLocation": "the SDK's toolkit in the container, before it fetches the source",
        "s3:GetObject": "source, data, checkpoints",
        "s3:ListBucket": "data and checkpoints",
        "s3:PutObject": "checkpoints and results",
        "sagemaker-mlflow:CreateExperiment": "--mlflow-server: what the trainer's MLflow calls, as AWS's plugin "
        "sagemaker-mlflow 0.5.0 asked a server on this machine; "
        "https://docs.aws.amazon.com/service-authorization/latest/reference/list_sagemaker-mlflow.html",
        "sagemaker-mlflow:CreateRun": "the same",
        "sagemaker-mlflow:GetExperiment": "the same",
        "sagemaker-mlflow:GetExperimentByName": "the same",
        "sagemaker-mlflow:GetRun": "the same",
        "sagemaker-mlflow:LogBatch": "the same",
        "sagemaker-mlflow:UpdateRun": "the same",
        "sagemaker:CallMlflowAppApi": "the same, of an MLflow app, whose calls are all one action to IAM",
        "ssmmessages:CreateControlChannel": "--remote-debug: AWS's agent in the container waits for a shell, "
        "https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html",
        "ssmmessages:CreateDataChannel": "the same, for the shell itself",
        "ssmmessages:OpenControlChannel": "the same",
        "ssmmessages:OpenDataChannel": "the same",
    },
}
# What --secret reads, of both kinds of training.
SECRETS = {"ssm:GetParameter", "secretsmanager:GetSecretValue"}


def granted_to(name: str, call: Request) -> bool:
    return all(allows([policy(name)], need) for need in needs(call, VIEW))


@pytest.mark.parametrize("call", BOOT, ids=lambda call: f"{call} {call.params.get('Key', '')}")
def test_a_node_may_do_what_its_boot_script_does(call: Request) -> None:
    assert granted_to("node", call)


def test_every_grant_of_a_role_is_needed_or_argued() -> None:
    boot = {need.action for call in BOOT for need in needs(call, VIEW)}
    assert actions("node") - boot - SECRETS == ARGUED["node"].keys()
    assert actions("scheduler") == ARGUED["scheduler"].keys()
    assert actions("sagemaker") - SECRETS == ARGUED["sagemaker"].keys()


@pytest.mark.parametrize(
    ("who", "action", "path", "context"),
    [
        *((who, "s3:GetObject", "/jobs/j/cluster.json", {}) for who in ("launcher", "node", "sagemaker")),
        *((who, "s3:ListBucket", "", {"s3:prefix": "jobs/j"}) for who in ("launcher", "node", "sagemaker")),
        ("launcher", "s3:PutObject", "/jobs/j/job.json", {}),
        ("node", "s3:PutObject", "/jobs/j/run/model.pt", {}),
        ("node", "s3:DeleteObject", "/jobs/j/run/model.pt", {}),
        ("sagemaker", "s3:PutObject", "/jobs/j/run/model.pt", {}),
    ],
)
def test_nobody_uses_a_bucket_of_another_account_whatever_its_name(
    who: str, action: str, path: str, context: dict[str, str]
) -> None:
    """Our names can be guessed, and are anybody's to take first."""

    def may(owner: str) -> bool:
        accounts = {"s3:ResourceAccount": owner, "aws:PrincipalAccount": "123456789012"}
        return allows([policy(who)], Need(action, f"arn:aws:s3:::{BUCKET}{path}", accounts | context))

    assert may("123456789012")
    assert not may("999999999999")


def test_the_time_limit_ends_only_what_carries_all_of_the_toolkits_tags() -> None:
    def may(**tags: str) -> bool:
        view = AccountView("123456789012", "us-east-1", lambda _name: tags, lambda _profile: [])
        call = Request("ec2", "TerminateInstances", {"InstanceIds": ["i-1"]})
        return all(allows([policy("sweeper")], need) for need in needs(call, view))

    ours = tag_values({"Tags": tags("j", "some-bucket", NOW, NOW)})
    assert may(**ours)
    for key in ours:
        assert not may(**{name: value for name, value in ours.items() if name != key})  # C3: some of them are copied
    assert not may(**{**ours, "Name": "database"})
    assert not may()


@pytest.mark.parametrize(
    ("role", "service", "may"),
    [
        ("sweeper", "ssm", True),
        ("sweeper", "ec2", False),
        ("scheduler", "ssm", False),
        ("node", "ssm", False),
        ("admin", "ssm", False),
    ],
)
def test_the_time_limit_hands_on_the_sweepers_role_only(role: str, service: str, may: bool) -> None:
    arn = f"arn:aws:iam::123456789012:role/{role if role == 'admin' else f'aws-ddp-toolkit-{role}'}"
    need = Need("iam:PassRole", arn, {"iam:PassedToService": f"{service}.amazonaws.com"})
    assert allows([policy("scheduler")], need) is may


# ---- what decides in these tests


def test_a_policy_is_read_as_iam_reads_it() -> None:
    cases = [
        ({}, {}, True),
        ({"Effect": "Deny"}, {}, False),
        ({"Action": ["s3:Get*"]}, {}, True),
        ({"Action": "s3:PutObject"}, {}, False),
        ({"Resource": "arn:aws:s3:::b/?ey"}, {}, True),
        ({"Resource": "arn:aws:s3:::b/[k]ey"}, {}, False),
        ({"Resource": "arn:aws:s3:::b/${*}"}, {}, False),
        ({"Resource": "arn:aws:s3:::b/k${?}*"}, {}, False),
        ({"Resource": "arn:aws:s3:::b/${aws:userid}"}, {"aws:userid": "key"}, True),
        ({"Resource": "arn:aws:s3:::b/${aws:userid}"}, {}, False),
        ({"Condition": {"Null": {"t": "false"}}}, {"t": ""}, True),
        ({"Condition": {"Null": {"t": "false"}}}, {}, False),
        ({"Condition": {"Null": {"t": "true"}}}, {}, True),
        ({"Condition": {"StringEquals": {"t": ["a", "b"]}}}, {"t": "b"}, True),
        ({"Condition": {"StringEquals": {"t": "a*"}}}, {"t": "ab"}, False),
        ({"Condition": {"StringLike": {"t": "a*"}}}, {"t": "ab"}, True),
        ({"Condition": {"StringLike": {"t": "*"}}}, {}, False),
        ({"Condition": {"Null": {"t": "false"}, "StringEquals": {"u": "1"}}}, {"t": "1"}, False),
        ({"Condition": {"StringEquals": {"T": "a"}}}, {"t": "a"}, True),
        ({"Condition": {"StringNotEquals": {"t": ["a", "b"]}}}, {"t": "b"}, False),
        ({"Condition": {"StringNotEquals": {"t": "a"}}}, {}, True),
        ({"Condition": {"ForAnyValue:StringNotEquals": {"t": "a"}}}, {}, False),
        ({"Condition": {"StringEqualsIfExists": {"t": "a"}}}, {}, True),
        ({"Condition": {"StringEqualsIfExists": {"t": "a"}}}, {"t": "b"}, False),
        ({"Condition": {"ForAllValues:StringEquals": {"t": ["a", "b"]}}}, {"t": ["a", "c"]}, False),
        ({"Condition": {"ForAllValues:StringEquals": {"t": ["a", "b"]}}}, {}, True),
        ({"Condition": {"ForAnyValue:StringEquals": {"t": "a"}}}, {"t": ["a", "c"]}, True),
        ({"Condition": {"Bool": {"t": True}}}, {"t": "true"}, True),
        ({"Condition": {"NumericEquals": {"t": 1}}}, {"t": "1"}, True),
        ({"Condition": {"ArnLike": {"t": "arn:aws:ec2:*:*:vpc/*"}}}, {"t": "arn:aws:ec2:r:1:vpc/v"}, True),
        ({"Condition": {"ArnLike": {"t": "arn:aws:iam::*:role/x"}}}, {"t": "arn:aws:iam::1:a:role/x"}, False),
        ({"Condition": {"ArnLike": {"t": "*role/x"}}}, {"t": "arn:aws:iam::1:role/x"}, False),
        ({"NotAction": "s3:PutObject", "Action": None}, {}, True),
        ({"NotResource": "arn:aws:s3:::b/k*", "Resource": None}, {}, False),
        ({"NotResource": "arn:aws:s3:::b/j*", "Resource": None}, {}, True),
    ]
    for statement, context, expected in cases:
        given = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", **statement}
        whole = {element: value for element, value in given.items() if value is not None}
        assert allows([{"Statement": [whole]}], Need("s3:GetObject", "arn:aws:s3:::b/key", context)) is expected


def test_a_star_of_a_variable_is_a_star_and_nothing_else() -> None:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html"""
    allow = {"Effect": "Allow", "Action": "ec2:CopySnapshot", "Resource": "arn:aws:ec2:*::snapshot/${*}"}
    may = [allows([{"Statement": allow}], Need("ec2:CopySnapshot", f"arn:aws:ec2:r::snapshot/{x}")) for x in ("*", "s")]
    assert may == [True, False]


def test_a_denial_wins_and_what_is_unknown_is_no_guess() -> None:
    allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    need = Need("s3:GetObject")
    assert allows([{"Statement": [allow]}], need)
    assert not allows([{"Statement": [allow]}, {"Statement": [{**allow, "Effect": "Deny"}]}], need)
    with pytest.raises(KeyError):
        allows([{"Statement": [{**allow, "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}]}], need)
    with pytest.raises(KeyError):
        allows([{"Statement": [{**allow, "Condition": {"Null": {"aws:TokenIssueTime": "yes"}}}]}], need)


def test_a_launcher_learns_that_an_object_is_missing() -> None:
    """A17: S3 answers 404 to those who may list the bucket and 403 to others, and asks without a prefix:
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html.  Nodes may list some prefixes only; boot.sh
    takes any failure for "not yet".
    """
    mine = {"s3:ResourceAccount": "123456789012", "aws:PrincipalAccount": "123456789012"}
    need = Need("s3:ListBucket", "arn:aws:s3:::aws-ddp-toolkit-123456789012-us-east-1", mine)
    assert allows([policy("launcher")], need)
    assert not allows([policy("node")], need)


# ---- the trust of SageMaker's role


def trust(account: str = "123456789012", **more: Any) -> dict[str, Any]:
    """infra/iam/sagemaker-trust.json for an account."""
    statement: dict[str, Any] = policy("sagemaker-trust")["Statement"][0]
    by = {**statement["Condition"], **more}
    made: dict[str, Any] = json.loads(
        json.dumps({"Statement": [{**statement, "Condition": by}]}).replace("@ACCOUNT@", account)
    )
    return made


@pytest.mark.parametrize(
    ("trusted", "may"),
    [
        (trust(), True),
        (trust("999999999999"), False),
        (trust(StringEquals={"aws:SourceAccount": "123456789012"}), False),  # which AWS's page does not have for jobs
    ],
)
def test_a_role_is_assumed_on_the_conditions_of_its_trust(trusted: dict[str, Any], may: bool) -> None:
    with mock_aws():
        role = SageMakerAccount("us-east-1").make_role("mine", trusted)
        with nullcontext() if may else pytest.raises(SagemakerClientError, match="Could not assume role"):
            check_role(role, "arn:aws:sagemaker:us-east-1:123456789012:training-job/j")
