"""Credentials, region and clock: without them nothing else can be asked."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.examination.case import Case, Identity
from launch.core.examination.findings import Verdict, missing, ok, warning
from launch.core.regions import check_region
from trainer.errors import SettingsError, TrainerError
from trainer.settings.registry import did_you_mean

# Services refuse requests whose time differs by more than five minutes, S3 by more than fifteen:
# https://docs.aws.amazon.com/IAM/latest/UserGuide/signature-v4-troubleshooting.html
SKEW_LIMIT_S, SKEW_NOTICED_S = 300, 60
SET_CLOCK = "sudo timedatectl set-ntp true, or your system's way to set the clock"
LOG_IN = "aws configure or aws sso login, then aws sts get-caller-identity"


def identify(aws: Aws) -> Identity:
    """Raises TrainerError without valid credentials and a region."""
    check_region(aws.region)
    _check_exists(aws)
    answer = aws.call("sts", "GetCallerIdentity")
    account, arn = str(answer["Account"]), str(answer["Arn"])
    role = re.fullmatch(r"arn:aws:sts::\d+:assumed-role/([^/]+)/.*", arn)
    return Identity(account, _role_arn(aws, account, role[1]) if role else arn, str(answer.get("UserId", "")))


def _check_exists(aws: Aws) -> None:
    """Raises SettingsError for a region that this SDK does not know: it would be looked for on the network."""
    known: list[str] = aws.session.get_available_regions("ec2")
    if aws.region not in known:
        raise SettingsError(f"AWS has no region {aws.region!r}{did_you_mean(aws.region, known) or '.'}")


def _role_arn(aws: Aws, account: str, name: str) -> str:
    """The ARN of an assumed role.  Its path, which single sign-on's roles have, is in IAM only."""
    try:
        return str(aws.call("iam", "GetRole", {"RoleName": name})["Role"]["Arn"])
    except AwsError:
        return f"arn:aws:iam::{account}:role/{name}"


def not_identified(error: TrainerError, skew_s: float | None) -> Verdict:
    """Why nothing can be asked."""
    if skew_s is not None and abs(skew_s) > SKEW_LIMIT_S:
        return missing(f"{error} {_skew(skew_s)}", SET_CLOCK)
    if isinstance(error, SettingsError) and "region" in str(error):
        return missing(str(error), "--region us-east-1, or aws configure set region us-east-1")
    return missing(str(error), LOG_IN)


def skew_s(aws: Aws, now: datetime) -> float | None:
    """By how much this machine's clock is ahead of AWS's; None without an answer."""
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
