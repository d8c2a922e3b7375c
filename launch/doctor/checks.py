"""The checks that every job needs, and run(), which performs them and those of the backend in order.

To add a check for all jobs: a function that takes the case and yields verdicts, and a line in all_checks().
Checks of one backend belong to its Examination.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from launch.aws.client import Aws
from launch.aws.examination.case import (
    SENDS_SOURCE,
    Case,
    Check,
    Examination,
    Finding,
    Identity,
    Verdict,
    missing,
    of_error,
    ok,
    warning,
)
from launch.aws.examination.permissions import of_script, stack_region, use_of_key, verdict
from launch.aws.lookup import SET_UP, check_bucket
from launch.aws.names import TOOLKIT
from launch.aws.regions import check_region
from launch.core.errors import AwsError
from trainer.errors import SettingsError, TrainerError


def all_checks(examination: Examination) -> tuple[Check, ...]:
    """All checks of a backend's job, in their order."""
    return (
        Check("credentials", credentials),
        Check("clock", clock),
        Check("stack", stack),
        Check("bucket", bucket),
        Check("bucket's key", bucket_key),
        *examination.roles,
        Check("permissions", launcher_permissions),
        *examination.needs,
        Check("budget", budget),
        Check("leftovers", examination.leftovers),
    )


def run(case: Case[Any]) -> Iterator[Finding]:
    """The findings of all checks; AWS's errors become findings."""
    for check in all_checks(case.examination):
        yield from (Finding(check.name, verdict) for verdict in _verdicts(check, case))


def _verdicts(check: Check, case: Case[Any]) -> Iterator[Verdict]:
    try:
        yield from check.run(case)
    except TrainerError as error:
        yield of_error(error, check.remedy)


# ---- credentials, region and clock, which all other checks need

# Services refuse requests with a time that differs by more than five minutes, S3 by more than fifteen:
# https://docs.aws.amazon.com/IAM/latest/UserGuide/signature-v4-troubleshooting.html
SKEW_LIMIT_S, SKEW_NOTICED_S = 300, 60
SET_CLOCK = "sudo timedatectl set-ntp true, or your system's way to set the clock"
LOG_IN = "aws configure or aws sso login, then aws sts get-caller-identity"


def identify(aws: Aws) -> Identity:
    """Identify the caller.  Raises TrainerError without valid credentials and a region."""
    check_region(aws.region)
    answer = aws.call("sts", "GetCallerIdentity")
    account, arn = str(answer["Account"]), str(answer["Arn"])
    role = re.fullmatch(r"arn:aws:sts::\d+:assumed-role/([^/]+)/.*", arn)
    return Identity(account, _role_arn(aws, account, role[1]) if role else arn, str(answer.get("UserId", "")))


def _role_arn(aws: Aws, account: str, name: str) -> str:
    """The ARN of an assumed role.  Its path, which single sign-on's roles have, is in IAM only."""
    try:
        return str(aws.call("iam", "GetRole", {"RoleName": name})["Role"]["Arn"])
    except AwsError:
        return f"arn:aws:iam::{account}:role/{name}"


def not_identified(error: TrainerError, skew_s: float | None) -> Verdict:
    """The verdict if the caller cannot be identified."""
    if skew_s is not None and abs(skew_s) > SKEW_LIMIT_S:
        return missing(f"{error} {_skew(skew_s)}", SET_CLOCK)
    if isinstance(error, SettingsError) and "region" in str(error):
        return missing(str(error), "--region us-east-1, or aws configure set region us-east-1")
    return missing(str(error), LOG_IN)


def skew_s(aws: Aws, now: datetime) -> float | None:
    """Seconds by which this machine's clock is ahead of AWS's; None without an answer."""
    return None if aws.answered_at is None else (now - aws.answered_at).total_seconds()


def credentials(case: Case[Any]) -> Iterator[Verdict]:
    identity = case.identity
    if identity.is_root:
        yield warning(
            f"the root user of {identity.account}, whom no policy limits",
            "use a user or role with the policy aws-ddp-toolkit-launcher: infra/account.md",
        )
    else:
        yield ok(f"{identity.principal} in {case.region}")


def clock(case: Case[Any]) -> Iterator[Verdict]:
    skew = skew_s(case.aws, case.now)
    if skew is None:
        return
    if abs(skew) > SKEW_NOTICED_S:
        yield warning(f"{_skew(skew)}; AWS refuses requests that are more than 5 minutes off", SET_CLOCK)
    else:
        yield ok(f"within {max(1.0, abs(skew)):.0f} s of AWS's")


def _skew(seconds: float) -> str:
    return f"this machine's clock is {abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'} AWS's"


# ---- what launch.infra sets up, as far as every job needs it

# States of a stack that is whole: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html
WHOLE = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "IMPORT_COMPLETE")


def stack(case: Case[Any]) -> Iterator[Verdict]:
    try:
        (row,) = case.aws.call("cloudformation", "DescribeStacks", {"StackName": TOOLKIT})["Stacks"]
    except AwsError as error:
        if error.aws_code != "ValidationError":  # CloudFormation's code for a stack that does not exist
            raise
        where = stack_region(case)
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
            "no budget, so nobody gets a warning about what the account spends",
            f"{SET_UP} --monthly-usd 500 --email YOU@EXAMPLE.ORG",
        )


def bucket_key(case: Case[Any]) -> Iterator[Verdict]:
    """The bucket's key, if it is the user's own, as nodes need permission to use it."""
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


# ---- what the launcher may do


def launcher_permissions(case: Case[Any]) -> Iterator[Verdict]:
    """Whether the caller has the permissions of this job's launcher."""
    if case.identity.is_root:
        yield ok("the root user may do everything")
        return
    rights = [*case.examination.rights, *of_script(case, SENDS_SOURCE)]
    if rights:
        yield verdict(case, case.identity.principal, rights, partial(_attach, case), case.examination.in_doubt)


def _attach(case: Case[Any], policies: Sequence[str]) -> str:
    """The command that attaches policies of infra/iam to the caller."""
    names = [f"{TOOLKIT}-{policy}" for policy in policies]
    if "/aws-reserved/sso.amazonaws.com/" in case.identity.principal:  # a role that only IAM Identity Center can change
        return f"add the customer managed policies {' and '.join(names)} to the permission set, in IAM Identity Center"
    kind = "role" if ":role/" in case.identity.principal else "user"
    whom = f"--{kind}-name {case.identity.principal.rpartition('/')[2]}"
    attach = f"aws iam attach-{kind}-policy {whom} --policy-arn arn:aws:iam::{case.account}:policy/"
    return " && ".join(attach + name for name in names)
