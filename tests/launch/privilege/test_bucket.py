"""What the policy of the account's bucket refuses beyond infra/iam, whose patterns know no exact bucket.

In a policy `*` takes in slashes, so that bucket-*/scripts/* is also bucket-1/data/photos/scripts/evil.jpg.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_resource.html
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from launch.infra.template import filled, read
from launch.rehearse.aws.iam.policies import Need, Policy, allows, listed, policy

ACCOUNT = "123456789012"
BUCKET = f"arn:aws:s3:::aws-ddp-toolkit-{ACCOUNT}-eu-west-1"
ONCE = {"s3:if-none-match": "*"}


@cache
def bucket_policy() -> Policy:
    thing = read(filled(ACCOUNT, "eu-west-1"))["Resources"]["JobBucketPolicy"]
    statements = [_plain(statement) for statement in thing["Properties"]["PolicyDocument"]["Statement"]]
    assert {statement.pop("Principal") for statement in statements} == {"*"}
    return {"Statement": statements}


def _plain(part: Any) -> Any:
    """A part of the template as CloudFormation sends it."""
    if isinstance(part, list):
        return [_plain(one) for one in part]
    if not isinstance(part, dict):
        return part
    if "Fn::GetAtt" in part:
        return BUCKET
    if "Fn::Sub" in part:
        return part["Fn::Sub"].replace("${JobBucket.Arn}", BUCKET).replace("${AWS::AccountId}", ACCOUNT)
    return {name: _plain(value) for name, value in part.items()}


def may(who: str, action: str, resource: str, context: dict[str, str], *, in_our_bucket: bool = True) -> bool:
    """Whether IAM lets the caller; the role of nodes and trainings has its own name, people have any."""
    arn = f"role/aws-ddp-toolkit-{who}" if who in ("node", "sagemaker") else "user/ann"
    known = {
        "aws:PrincipalAccount": ACCOUNT,
        "s3:ResourceAccount": ACCOUNT,
        "aws:SecureTransport": "true",
        "aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:{arn}",
        **context,
    }
    policies = [policy(who), *([bucket_policy()] if in_our_bucket else [])]
    return allows(policies, Need(action, resource, known))


# Data sets, what is published from, what a publisher goes on with, and what images are built of.
OF_PUBLISHERS = ("data", "data/photos/train", "sources", "sources/photos/train", "data-runs/photos/state")
BUILDS = "aws-ddp-toolkit-builds"


def written(who: str) -> Iterator[tuple[str, str, bool]]:
    """What the policy lets one write and delete in a bucket: the action, the pattern of the key, and if only once."""
    for statement in policy(who)["Statement"]:
        once = "s3:if-none-match" in statement["Condition"].get("Null", {}) if "Condition" in statement else False
        for action in {"s3:PutObject", "s3:DeleteObject"} & set(listed(statement["Action"])):
            yield from ((action, arn.partition("/")[2], once) for arn in listed(statement["Resource"]))


@pytest.mark.parametrize("who", ["launcher", "node", "sagemaker", "builder"])
def test_every_pattern_of_keys_ends_at_the_folders_of_others(who: str) -> None:
    patterns = list(written(who))
    assert {pattern.partition("/")[0] for _, pattern, _ in patterns} <= {"jobs", "scripts", BUILDS}
    assert len(patterns) >= (1 if who == "builder" else 3)
    for action, pattern, once in patterns:
        for place in OF_PUBLISHERS[1:] if who == "builder" else (*OF_PUBLISHERS, BUILDS):
            key = f"{place}/{pattern.replace('*', 'x')}"
            context = ONCE if once else {}
            assert may(who, action, f"{BUCKET}/{key}", context, in_our_bucket=False), key  # else it shows nothing
            assert not may(who, action, f"{BUCKET}/{key}", context), key


def test_the_buckets_policy_is_in_nobodys_way() -> None:
    cases = [
        ("data", "s3:PutObject", "data/photos/train/scripts/1.jpg", {}),
        ("data", "s3:PutObject", "sources/photos/train/scripts/1.jpg", {}),
        ("data", "s3:DeleteObject", "sources/photos/jobs/x/run/1.jpg", {}),
        # Data sets that are called jobs, and those with such a folder in them.
        ("data", "s3:PutObject", "data/jobs/manifest.json", {}),
        ("publisher", "s3:PutObject", "data/jobs/published.json", {}),
        ("publisher", "s3:PutObject", "data-runs/jobs/exit.json", {}),
        ("publisher", "s3:PutObject", "data-runs/jobs/run.json", ONCE),
        ("data", "s3:PutObject", "sources/photos/jobs/train/labels.json", {}),
        ("data", "s3:PutObject", "data-runs/photos/run.json", ONCE),
        ("data", "s3:PutObject", "data-runs/photos/code-0123.tar.gz", {}),
        ("builder", "s3:PutObject", "aws-ddp-toolkit-builds/0123.zip", {}),
        ("data", "s3:PutObject", "data/aws-ddp-toolkit-builds/manifest.json", {}),  # whatever it is called
        ("sagemaker", "s3:PutObject", "jobs/j/output/j/output/model.tar.gz", {}),
        ("publisher", "s3:DeleteObject", "data/photos/shard-0.tar", {}),
        ("publisher", "s3:PutObject", "data-runs/photos/run.json", ONCE),
        ("launcher", "s3:PutObject", "scripts/2026-11/0123/source.tar.gz", ONCE),
        ("launcher", "s3:PutObject", "jobs/j/source/0123/sourcedir.tar.gz", ONCE),
        ("launcher", "s3:PutObject", "jobs/j/job.json", {}),
        ("node", "s3:PutObject", "jobs/j/run/data/1.pt", {}),
        ("node", "s3:GetObject", "data/photos/shard-0.tar", {}),
        ("sagemaker", "s3:DeleteObject", "jobs/j/run/checkpoints/1.pt", {}),
    ]
    for who, action, key, context in cases:
        assert may(who, action, f"{BUCKET}/{key}", context)
