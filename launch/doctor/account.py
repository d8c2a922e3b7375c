"""What launch.infra sets up once, as far as every job needs it: stack, bucket and budget."""

from collections.abc import Iterator
from typing import Any

from launch.core.errors import AwsError
from launch.core.examination.case import Case
from launch.core.examination.findings import Verdict, ok, warning
from launch.core.examination.keys import use_of_key
from launch.core.examination.stack import home
from launch.core.lookup import SET_UP, check_bucket
from launch.core.names import TOOLKIT

# States of a stack that is whole: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html
WHOLE = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "IMPORT_COMPLETE")


def stack(case: Case[Any]) -> Iterator[Verdict]:
    try:
        (row,) = case.aws.call("cloudformation", "DescribeStacks", {"StackName": TOOLKIT})["Stacks"]
    except AwsError as error:
        if error.aws_code != "ValidationError":  # CloudFormation's code for a stack that does not exist
            raise
        where = home(case)
        text = f"the account's is in {where}" if where else "its resources can also be created by hand"
        fix = f"--region {where}, or {_set_up(case)}" if where else _set_up(case)
        yield warning(f"no stack {TOOLKIT} in {case.region}; {text}", fix)
        return
    state = row["StackStatus"]
    if state in WHOLE or state.startswith("UPDATE_ROLLBACK_COMPLETE"):
        yield ok(f"{TOOLKIT}: {state}")
    else:
        yield warning(f"{TOOLKIT} is {state}", _set_up(case))


def _set_up(case: Case[Any]) -> str:
    return f"{SET_UP} --region {case.region}"


def bucket(case: Case[Any]) -> Iterator[Verdict]:
    check_bucket(case.aws, case.bucket, case.account)
    yield ok(case.bucket)


def budget(case: Case[Any]) -> Iterator[Verdict]:
    # Budgets are global: https://docs.aws.amazon.com/general/latest/gr/billing.html
    rows = case.aws.pages("budgets", "DescribeBudgets", "Budgets", {"AccountId": case.account})
    if rows:
        yield ok(f"{len(rows)} in the account")
    else:
        yield warning(
            "no budget, so nobody is told what the account spends",
            f"{SET_UP} --monthly-usd 500 --email YOU@EXAMPLE.ORG",
        )


def keys(case: Case[Any]) -> Iterator[Verdict]:
    """The key of the bucket, where it is the user's own: nodes need leave to use it."""
    query = {"Bucket": case.bucket, "ExpectedBucketOwner": case.account}
    try:
        answer = case.aws.call("s3", "GetBucketEncryption", query)
    except AwsError as error:
        if error.aws_code != "ServerSideEncryptionConfigurationNotFoundError":
            raise
        answer = {}
    rules = answer.get("ServerSideEncryptionConfiguration", {}).get("Rules", ())
    key = next((_own_key(rule) for rule in rules if _own_key(rule)), "")
    if key:
        yield from use_of_key(case, key, "objects of the bucket")
    else:
        yield ok("objects of the bucket: AWS's own key")


def _own_key(rule: dict[str, dict[str, str]]) -> str:
    default = rule.get("ApplyServerSideEncryptionByDefault", {})
    return default.get("KMSMasterKeyID", "") if default.get("SSEAlgorithm", "").startswith("aws:kms") else ""
