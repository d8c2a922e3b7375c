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
DATA = f"{BUCKET}/data/photos"


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


ATTACKS = [
    ("launcher", "s3:PutObject", f"{DATA}/train/scripts/evil.jpg", ONCE),
    ("launcher", "s3:PutObject", f"{DATA}/train/jobs/x/source/evil.jpg", ONCE),
    *(("launcher", "s3:PutObject", f"{DATA}/train/jobs/x/{file}.json", {}) for file in ("job", "cluster", "outcome")),
    *(
        (who, action, f"{DATA}/train/jobs/x/run/evil.jpg", {})
        for who in ("node", "sagemaker")
        for action in ("s3:PutObject", "s3:DeleteObject")
    ),
    ("sagemaker", "s3:PutObject", f"{DATA}/train/jobs/x/output/evil.jpg", {}),
    ("node", "s3:PutObject", f"{DATA}/train/jobs/x/exits/evil.jpg", {}),
    ("launcher", "s3:PutObject", f"{BUCKET}/data/jobs/x/job.json", {}),  # of a data set that is called jobs
    # What a publisher's instance reads, or goes on with, and what the image is built of.
    *(
        ("launcher", "s3:PutObject", f"{BUCKET}/{place}/evil.jpg", ONCE)
        for place in (
            "sources/photos/train/scripts",
            "sources/scripts",
            "sources/photos/jobs/x/source",
            "data-runs/photos/state/scripts",
            "aws-ddp-toolkit-builds/scripts",
        )
    ),
    *(
        ("launcher", "s3:PutObject", f"{BUCKET}/sources/{place}jobs/x/{file}.json", {})
        for place in ("", "photos/")
        for file in ("job", "cluster", "outcome")
    ),
    ("launcher", "s3:PutObject", f"{BUCKET}/data-runs/photos/state/jobs/x/job.json", {}),
    *(
        ("launcher", "s3:PutObject", f"{BUCKET}/aws-ddp-toolkit-builds/jobs/x/{file}.json", {})
        for file in ("job", "cluster", "outcome")
    ),
    # Who may push the image may not add a class of images to somebody's data for that.
    *(
        ("builder", "s3:PutObject", f"{BUCKET}/{place}/aws-ddp-toolkit-builds/evil.jpg", {})
        for place in ("data/photos", "data/photos/train", "data-runs/photos/state", "sources", "sources/photos/train")
    ),
    *(
        (who, action, f"{BUCKET}/{place}/jobs/x/run/evil.jpg", {})
        for who in ("node", "sagemaker")
        for action in ("s3:PutObject", "s3:DeleteObject")
        for place in (
            "sources/photos/train",
            "data-runs/photos/state",
            "aws-ddp-toolkit-builds",
            "scripts/2026-11/0123",
        )
    ),
]


@pytest.mark.parametrize(("who", "action", "resource", "context"), ATTACKS)
def test_data_and_their_sources_are_for_publishers_alone_whatever_their_folders_are_called(
    who: str, action: str, resource: str, context: dict[str, str]
) -> None:
    assert may(who, action, resource, context, in_our_bucket=False)  # else the row shows nothing
    assert not may(who, action, resource, context)


def written(who: str) -> Iterator[tuple[str, str, bool]]:
    """What the policy lets one write and delete in a bucket: the action, the pattern of the key, and if only once."""
    for statement in policy(who)["Statement"]:
        once = "s3:if-none-match" in statement["Condition"].get("Null", {}) if "Condition" in statement else False
        for action in {"s3:PutObject", "s3:DeleteObject"} & set(listed(statement["Action"])):
            yield from ((action, arn.partition("/")[2], once) for arn in listed(statement["Resource"]))


@pytest.mark.parametrize("who", ["launcher", "node", "sagemaker"])
def test_every_pattern_of_keys_ends_at_the_folders_of_data(who: str) -> None:
    patterns = list(written(who))
    assert {pattern.partition("/")[0] for _, pattern, _ in patterns} <= {"jobs", "scripts"}
    assert len(patterns) >= 3
    for action, pattern, once in patterns:
        for place in ("data", "data/photos/train", "sources", "sources/photos/train"):
            key = f"{place}/{pattern.replace('*', 'x')}"
            assert may(who, action, f"{BUCKET}/{key}", ONCE if once else {}, in_our_bucket=False), key
            assert not may(who, action, f"{BUCKET}/{key}", ONCE if once else {}), key


@pytest.mark.parametrize(
    ("who", "action", "key", "context"),
    [
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
    ],
)
def test_the_buckets_policy_is_in_nobodys_way(who: str, action: str, key: str, context: dict[str, str]) -> None:
    assert may(who, action, f"{BUCKET}/{key}", context)
