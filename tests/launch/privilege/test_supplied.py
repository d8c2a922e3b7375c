"""Each condition of infra/iam asks for a key that AWS gives for this action on this kind of resource.

One that it does not give makes an Allow that never allows, however right the key is for another resource of the same
call: IAM knows no VPC of a network interface that is being made.  By the table of parliament, which looks at actions
only: https://docs.aws.amazon.com/service-authorization/latest/reference/reference_policies_actions-resources-contextkeys.html
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

from launch.rehearse.aws.iam.policies import listed
from tests.conftest import ROOT
from tests.launch.privilege.test_parliament import PYTHON

# Which IAM gives for every request: .../IAM/latest/UserGuide/reference_policies_condition-keys.html
ALWAYS = {"aws:principalaccount", "aws:resourceaccount", "aws:calledvia"}
NEWER = "newer than the table: "
ARGUED = {
    ("builder", "StartBuilds", "codebuild:StartBuild"): NEWER
    + "https://docs.aws.amazon.com/codebuild/latest/userguide/action-context-keys.html",
    ("data", "CopyFromTheAccounts", "ec2:CopySnapshot"): NEWER
    + "https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html",
    ("launcher-queue", "SubmitOwnControllers", "batch:SubmitJob"): "the table has it for the job, as it has "
    "batch:ShareIdentifier, which AWS's own example gives for the queue and the definition: "
    "https://docs.aws.amazon.com/batch/latest/userguide/iam-example-share-identifier.html",
    ("sagemaker-extras", "RegisterModels", "sagemaker:CreateModelPackage"): NEWER
    + "https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsagemakerai.html",
}


@cache
def table() -> dict[str, Any]:
    (file,) = PYTHON.parent.parent.glob("lib/python*/site-packages/parliament/iam_definition.json")
    return {service["prefix"]: service for service in json.loads(file.read_text())}


def unsupplied() -> Iterator[tuple[str, str, str]]:
    """The policy, the statement and the action of each condition whose key AWS does not give."""
    for path in sorted((ROOT / "infra/iam").glob("*.json")):
        for statement in json.loads(path.read_text())["Statement"] if "trust" not in path.stem else ():
            keys = {key.lower() for keys in statement.get("Condition", {}).values() for key in keys} - ALWAYS
            for action in listed(statement["Action"]) if keys else ():
                if any(not keys <= _given(keys, known) for known in _kinds(action, listed(statement["Resource"]))):
                    yield path.stem, statement["Sid"], action


def _kinds(action: str, arns: list[str]) -> Iterator[list[str]]:
    """The keys that AWS gives for the action, for each kind of resource that the statement names."""
    service, _, name = action.partition(":")
    rows: list[dict[str, Any]] = next(
        (row["resource_types"] for row in table()[service]["privileges"] if row["privilege"] == name), []
    )
    of_request = [key for row in rows if not row["resource_type"] for key in row["condition_keys"]]
    kinds = {row["resource"]: row for row in table()[service]["resources"]}
    named = [(kinds[row["resource_type"].strip("*")], row["condition_keys"]) for row in rows if row["resource_type"]]
    # EC2's rows are complete; of other services' the keys of the kind itself count, too.
    more = [] if service == "ec2" else [key for kind, _ in named for key in kind["condition_keys"]]
    for kind, keys in named or [({"arn": "*"}, [])]:
        if any(_is_of(arn, kind["arn"]) for arn in arns):
            yield [*of_request, *keys, *more]


def _is_of(arn: str, kind: str) -> bool:
    """Whether a statement names things of this kind; "*" does not say which, and its conditions choose."""
    return arn.split(":", 5)[-1].startswith(kind.split(":", 5)[-1].partition("$")[0]) and arn != "*"


def _given(keys: set[str], known: list[str]) -> set[str]:
    patterns = [re.sub(r"\$\{[^}]*\}|<[^>]*>", "*", key.lower()) for key in known]
    return {key for key in keys if any(fnmatchcase(key, pattern) for pattern in patterns)}


@pytest.mark.skipif(not PYTHON.exists(), reason="needs parliament: make .venv/parliament")
def test_no_condition_asks_for_a_key_that_aws_does_not_give() -> None:
    assert set(unsupplied()) == ARGUED.keys()
