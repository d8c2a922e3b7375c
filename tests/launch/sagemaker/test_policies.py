"""infra/iam: what SageMaker's role may do, and what every policy is bounded by; tests/launch/privilege has the rest."""

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.rehearse.aws.iam.callers import MOTOS_USER_ID
from launch.rehearse.aws.iam.needs import AccountView, needs
from launch.rehearse.aws.iam.policies import Need, allows
from launch.sagemaker.register import requests as registrations
from tests.conftest import ROOT
from tests.launch.faults import Request
from tests.launch.sagemaker.account import SageMakerAccount
from tests.launch.sagemaker.known import NAME, request

FOLDER = ROOT / "infra" / "iam"
POLICIES = {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


MINE = {"s3:ResourceAccount": SageMakerAccount.id}

# Statements that may change things of any name, and without a condition; why nothing narrower would do.
WIDE = {
    ("doctor.json", "AskWhatRolesMayDo"): "reads only: what a role may do, whatever it is named",
    ("doctor.json", "LookAtAccount"): "reads only, of what has no name to limit it to",
    ("launcher.json", "AnyNetwork"): "--subnet: what a node may reach there is for security groups to say",
    ("launcher.json", "ShellDocument"): "two documents, of AWS's own",
    ("launcher.json", "OwnShells"): "sessions of the user's own, by the user's id",
    ("node.json", "SayThatAShellCanBeOpened"): "Session Manager's agent: a node's name is not known before it is",
    ("node.json", "CarryTheShell"): "the same; its channels are no resource to IAM",
    ("scheduler.json", "StartTheSweeper"): "one document, of our own, and its executions",
    ("sweeper.json", "StartTheSweeper"): "one document, of our own, and its executions",
    ("sagemaker-extras.json", "InGroups"): "makes groups of any name, which there are not yet",
    ("sagemaker-vpc.json", "WithNewInterfaces"): "their subnet and groups have statements of their own",
    ("sagemaker.json", "LetAShellIn"): "AWS's agent in a job's container: its channels are no resource to IAM",
}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# ---- who may do what, as IAM decides it


def grants(policy: str, action: str, resource: str, **context: str) -> bool:
    """Whether the policy allows it.  context: the values of condition keys."""
    who = {"aws:userid": MOTOS_USER_ID, "aws:PrincipalAccount": SageMakerAccount.id}
    if action.startswith("ecr:") and resource != "*":
        # As ECR says it: https://github.com/aws-samples/data-perimeter-policy-examples, service_specific_guidance
        who["aws:ResourceAccount"] = resource.split(":")[4]
    return allows([POLICIES[policy]], Need(action, resource, who | context))


# What a policy of its own has of what these commands read.


# ---- the training jobs' role

BUCKET = f"arn:aws:s3:::{SageMakerAccount.bucket}"
LOGS = f"arn:aws:logs:us-east-1:{SageMakerAccount.id}:log-group"


def test_the_role_may_do_what_sagemaker_does_with_a_job() -> None:
    """By the request itself: the source, the checkpoints, the result, the image, the log."""
    asked = request()

    def key(uri: str) -> str:
        return uri.replace("s3://", "arn:aws:s3:::")

    def may(action: str, resource: str, **context: str) -> bool:
        return grants("sagemaker.json", action, resource, **MINE, **context)

    source = key(json.loads(asked["HyperParameters"]["sagemaker_submit_directory"]))
    checkpoint = key(asked["CheckpointConfig"]["S3Uri"]) + "/checkpoints/step-00000010.pt"
    result = key(asked["OutputDataConfig"]["S3OutputPath"]) + f"/{NAME}/output/model.tar.gz"
    assert may("s3:GetObject", source)
    assert may("s3:ListBucket", BUCKET, **{"s3:prefix": source.removeprefix(BUCKET + "/")})
    assert all(may(f"s3:{action}Object", checkpoint) for action in ("Get", "Put", "Delete"))
    assert may("s3:ListBucket", BUCKET, **{"s3:prefix": f"jobs/{NAME}/run"})
    assert may("s3:PutObject", result)
    assert may("s3:GetObject", f"{BUCKET}/data/imagenet/train/0.jpg")
    assert may("logs:PutLogEvents", f"{LOGS}:/aws/sagemaker/TrainingJobs:log-stream:j")
    host, _, repository = asked["AlgorithmSpecification"]["TrainingImage"].partition("/")
    image = f"arn:aws:ecr:us-east-1:{host.partition('.')[0]}:repository/{repository.partition(':')[0]}"
    assert may("ecr:BatchGetImage", image)


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("s3:PutObject", f"{BUCKET}/data/imagenet/train/0.jpg"),
        ("s3:PutObject", f"{BUCKET}/jobs/j/job.json"),
        ("s3:PutObject", f"{BUCKET}/jobs/j/source/0123/sourcedir.tar.gz"),
        ("s3:DeleteObject", f"{BUCKET}/jobs/j/output/j/output/model.tar.gz"),
        ("s3:GetObject", "arn:aws:s3:::somebody-elses/jobs/j/job.json"),
        ("s3:ListBucket", BUCKET),  # without a prefix
        ("logs:PutLogEvents", f"{LOGS}:/aws-ddp-toolkit/ec2:log-stream:j"),
        ("ecr:BatchGetImage", f"arn:aws:ecr:us-east-1:{SageMakerAccount.id}:repository/other"),
        ("cloudwatch:PutMetricData", "*"),  # without the namespace
        ("ec2:TerminateInstances", "*"),
    ],
)
def test_the_role_may_do_nothing_else(action: str, resource: str) -> None:
    assert not grants("sagemaker.json", action, resource, **MINE)


def test_the_role_may_pull_from_every_registry_of_the_table() -> None:
    registries = yaml.safe_load((ROOT / "infra/images.yaml").read_text())["registries"]
    # China and GovCloud are partitions of their own: ARNs there do not begin with arn:aws:.
    for region, account in {"us-east-1": registries["default"], **registries["exceptions"]}.items():
        if region.startswith(("cn-", "us-gov-")):
            continue
        image = f"arn:aws:ecr:{region}:{account}:repository/pytorch-training"
        assert grants("sagemaker.json", "ecr:BatchGetImage", image), region


def test_the_role_may_pull_hugging_faces_images_for_training() -> None:
    """They are AWS's too, from the same registries: SageMaker's SDK 2 has the table."""
    sdk = find_spec("sagemaker")  # importing it takes seconds
    assert sdk is not None
    assert sdk.origin is not None
    table = Path(sdk.origin).parent / "image_uri_config/huggingface.json"
    rows = json.loads(table.read_text())["training"]
    tables = [row for version in rows["versions"].values() for row in version.values() if isinstance(row, dict)]
    places = {place for row in tables if row.get("repository") == "huggingface-pytorch-training"
              for place in row["registries"].items()}  # fmt: skip
    assert ("us-east-1", "763104351884") in places
    for region, account in places:
        if region.startswith(("cn-", "us-gov-", "us-iso")):  # partitions of their own
            continue
        for action in ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer"):
            image = f"arn:aws:ecr:{region}:{account}:repository/huggingface-pytorch-training"
            assert grants("sagemaker.json", f"ecr:{action}", image), region
    assert not grants("sagemaker.json", "ecr:BatchGetImage", "arn:aws:ecr:us-east-1:763104351884:repository/djl")


# ---- shells


@pytest.mark.parametrize(
    ("target", "may"), [("sagemaker-training-job:demo_algo-1", True), ("i-0123456789abcdef0", False), ("", False)]
)
def test_the_extras_open_shells_in_training_jobs_only(target: str, may: bool) -> None:
    """The condition of https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html, "IAM user"."""
    context = {"ssm:resourceTag/aws:ssmmessages:target-id": target} if target else {}
    assert grants("sagemaker-extras.json", "ssm:StartSession", "*", **context) is may


def test_the_extras_register_what_we_register() -> None:
    view = AccountView(SageMakerAccount.id, "us-east-1", lambda _name: {}, lambda _profile: [])
    for one in registrations("mine", "j", "us-east-1", "s3://b/model.tar.gz", "1"):
        call = Request(one.service, one.operation, one.params)
        asked = list(needs(call, view))
        assert asked
        assert all(allows([POLICIES["sagemaker-extras.json"]], need) for need in asked)


# ---- all of them


def statements() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in sorted(POLICIES):
        policy = POLICIES[name]
        for statement in policy["Statement"]:
            yield name, statement


def test_every_policy_names_its_actions() -> None:
    assert {"launcher.json", "node.json", "sagemaker.json", "scheduler.json"} <= POLICIES.keys()
    for name, statement in statements():
        assert statement["Effect"] == "Allow", name
        assert not [action for action in listed(statement["Action"]) if "*" in action], name


def test_what_changes_things_is_limited_by_name_or_condition() -> None:
    reads = re.compile(r"\w+:(Describe|Get|List|Filter|BatchGet|BatchCheck)\w*")
    wide = {
        (name, statement["Sid"])
        for name, statement in statements()
        if "Resource" in statement
        and any(not reads.fullmatch(action) for action in listed(statement["Action"]))
        and not all(is_named(resource) for resource in listed(statement["Resource"]))
        and "Condition" not in statement
    }
    assert wide == set(WIDE)


def is_named(resource: str) -> bool:
    return "aws-ddp-toolkit" in resource or ":log-group:/aws/sagemaker/TrainingJobs" in resource
