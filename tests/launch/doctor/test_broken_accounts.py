"""launch.doctor on accounts that lack one thing each of what every job needs; it is named, with what mends it."""

import json
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from moto.iam.models import iam_backends

from launch.aws.examination.case import Identity
from launch.doctor import checks
from launch.rehearse.aws.iam.policies import policy
from tests.launch.doctor.account import Patient, only
from tests.launch.doctor.broken import Broken, assert_named, delete
from tests.launch.faults import Fault, Faults, injected, refused


@pytest.fixture
def patient() -> Iterator[Patient]:
    with Patient.opened() as opened:
        yield opened


def shut_region(region: str) -> Callable[[Patient], None]:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_examples_aws_deny-requested-region.html"""
    others = [one for one in ("us-east-1", "eu-west-1") if one != region]
    condition = {"StringNotEquals": {"aws:RequestedRegion": others}}
    deny = {"Effect": "Deny", "Action": "*", "Resource": "*", "Condition": condition}
    return lambda patient: patient.account.rules.organization.append({"Version": "2012-10-17", "Statement": [deny]})


def may_not(action: str) -> Callable[[Patient], None]:
    """A caller with the launcher's policy but for one action."""

    def harm(patient: Patient) -> None:
        deny = {"Effect": "Deny", "Action": action, "Resource": "*"}
        content = {**policy("launcher"), "Statement": [*policy("launcher")["Statement"], deny]}
        iam_backends[patient.account.id]["aws"].users["moto"].policies["launcher"] = json.dumps(content)

    return harm


def no_bucket(patient: Patient) -> None:
    delete("s3", "DeleteBucket", Bucket=patient.account.bucket)(patient)


BROKEN = (
    Broken("an organization that shuts the region", "permissions", "unknown", "the organization's policies refuse it",
           "dry run", shut_region("us-east-1")),
    Broken("an organization that shuts another region", "permissions", "ok", "are allowed", "",
           shut_region("eu-west-1")),
    Broken("a launcher without the second policy", "permissions", "missing",
           "which infra/iam/reader.json",
           "policy/aws-ddp-toolkit-reader", lambda patient: patient.may_only("launcher")),
    Broken("no bucket", "bucket", "missing", "there is no bucket aws-ddp-toolkit-123456789012-us-east-1",
           "python -m launch.infra up", no_bucket),
    Broken("no budget", "budget", "warning", "nobody gets a warning", "--monthly-usd",
           delete("budgets", "DeleteBudget", AccountId="123456789012", BudgetName="b")),
    Broken("no stack", "stack", "warning", "no stack aws-ddp-toolkit in us-east-1", "python -m launch.infra up",
           delete("cloudformation", "DeleteStack", StackName="aws-ddp-toolkit")),
    Broken("a launcher that may not start nodes", "permissions", "missing",
           "moto may not ec2:RunInstances, which infra/iam/launcher.json allows", "aws iam attach-user-policy",
           may_not("ec2:RunInstances")),
    Broken("a launcher that may not pass the role", "permissions", "missing", "moto may not iam:PassRole",
           "policy/aws-ddp-toolkit-launcher", may_not("iam:PassRole")),
)  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.what)
def test_what_an_account_lacks_is_named_with_its_remedy(patient: Patient, broken: Broken) -> None:
    assert_named(patient, broken)


def test_people_who_sign_in_once_get_policies_by_their_permission_set(patient: Patient) -> None:
    """AWS refuses to attach anything to their roles."""
    role = "arn:aws:iam::123456789012:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_Train_0123456789abcdef"
    case = SimpleNamespace(account="123456789012", identity=Identity("123456789012", role))
    assert checks._attach(case, ["launcher", "reader"]) == (  # type: ignore[arg-type]
        "add the customer managed policies aws-ddp-toolkit-launcher and aws-ddp-toolkit-reader to the permission set, "
        "in IAM Identity Center"
    )


# ---- who cannot ask anything


def test_expired_credentials_end_the_examination(patient: Patient) -> None:
    with injected(Faults().on("GetCallerIdentity", refused("ExpiredToken", 403), nth=None)):
        found = patient.examine(code=4)

    assert found["credentials"]["state"] == "missing"
    assert "aws sso login" in found["credentials"]["remedy"]
    assert found["everything else"]["state"] == "unknown"


def test_a_clock_that_aws_refuses_is_named(patient: Patient) -> None:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/signature-v4-troubleshooting.html"""
    patient.later_s = 900
    late = refused("SignatureDoesNotMatch", 403, "Signature expired: 20261121T140000Z is now earlier than ...")
    with injected(Faults().on("GetCallerIdentity", dated(late), nth=None)):
        found = patient.examine(code=4)

    assert re.search(r"clock is 90\d s ahead of AWS's", found["credentials"]["text"])
    assert "set-ntp" in found["credentials"]["remedy"]


def dated(fault: Fault) -> Fault:
    """With the time, which every answer of AWS's has."""
    from email.utils import formatdate

    def answer(*words: Any) -> Any:
        status, headers, body = fault.answer(*words)
        return status, {**headers, "date": formatdate(usegmt=True)}, body

    return Fault(answer, takes_effect=False)


def test_a_region_that_does_not_exist_is_not_looked_for(patient: Patient) -> None:
    found = patient.examine("--region", "eu-west-9", code=4)["credentials"]

    assert "AWS has no region 'eu-west-9'" in found["text"]
    assert "did you mean 'eu-west-" in found["text"]
    assert patient.account.requests[-1].operation != "GetCallerIdentity"


def test_the_wrong_region_lacks_what_was_set_up_in_another(patient: Patient) -> None:
    found = patient.examine("--region", "eu-west-1", code=4)

    assert found["stack"]["text"] == "no stack aws-ddp-toolkit in eu-west-1; the account's is in us-east-1"
    assert found["bucket"]["state"] == "missing"
    assert "--region eu-west-1" in found["stack"]["remedy"]


# ---- what may not be asked, or is not answered


# Check -> the operation that is refused, and the right that it takes.
RIGHTS = {
    "stack": ("DescribeStacks", "cloudformation:DescribeStacks"),
    "bucket's key": ("GetBucketEncryption", "s3:GetEncryptionConfiguration"),
    "sweeper": ("GetSchedule", "scheduler:GetSchedule"),
    "permissions": ("SimulatePrincipalPolicy", "iam:SimulatePrincipalPolicy"),
}


@pytest.mark.parametrize("check", RIGHTS)
def test_a_denied_look_up_is_unknown_and_names_the_right(patient: Patient, check: str) -> None:
    operation, right = RIGHTS[check]
    with injected(Faults().on(operation, refused("AccessDenied", 403), nth=None)), only(check):
        found = patient.examine()[check]

    assert found["state"] == "unknown"
    assert f"may not {right}; ask for the policy in infra/iam/" in found["text"]


def test_a_clock_that_drifts_is_a_warning(patient: Patient) -> None:
    patient.later_s = -120
    with only("clock"):
        assert patient.examine()["clock"]["state"] == "warning"
