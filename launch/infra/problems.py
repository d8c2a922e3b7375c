"""What prevents a stack from being created or changed, each with a remedy: settings, and what is there.  Pure."""

import re
from collections.abc import Mapping
from typing import Any

from launch.aws.names import FOR_EC2
from launch.aws.regions import check_region
from launch.core.errors import AwsError
from launch.infra.lookup import Facts, Stack
from launch.infra.options import DOWN, UP, SetUpOptions
from launch.infra.template import STACK, filled, read
from trainer.errors import SettingsError, TrainerError

# States in which CloudFormation accepts no change.
STUCK = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED", "IMPORT_ROLLBACK_FAILED")


def problems_of(facts: Facts, template: Mapping[str, Any], values: Mapping[str, str]) -> list[TrainerError]:
    """The reasons why the stack cannot be created or changed.  values: the parameters that it would have."""
    possible = (
        _no_vpc(values),
        _in_the_way(facts),
        _stuck(facts.stack),
        _second_endpoints(template, facts, values),
    )
    return [problem for problem in possible if problem is not None]


def _no_vpc(values: Mapping[str, str]) -> TrainerError | None:
    if values.get("VpcId"):
        return None
    if values.get("SecurityGroup") == "yes":
        return SettingsError("--security-group needs a VPC; give --vpc-id, too.")
    if values.get("SubnetIds"):
        return SettingsError("--endpoint-subnets need a VPC; give --vpc-id, too.")
    return None


def _in_the_way(facts: Facts) -> TrainerError | None:
    """Resources that the stack cannot adopt.  They hold no data, but may be in use."""
    if not facts.conflicts:
        return None
    names = ", ".join(f"{kind} {name}" for kind, name in facts.conflicts)
    return AwsError(
        f"created outside the stack, which cannot adopt them: {names}; delete them in the IAM console (roles and "
        f"policies hold no data) while no job runs, and run {UP} again.",
        "AlreadyExists",
    )


def _stuck(stack: Stack | None) -> TrainerError | None:
    if stack is None:
        return None
    if stack.status in STUCK:
        return AwsError(f"the stack is in {stack.status}; run {DOWN} --keep-data, then {UP} again.", stack.status)
    if stack.status == "UPDATE_ROLLBACK_FAILED":
        return AwsError(
            "AWS could not roll the stack back; run aws cloudformation continue-update-rollback "
            f"--stack-name {STACK}, then check python -m launch.infra show.",
            stack.status,
        )
    return None


def _second_endpoints(template: Mapping[str, Any], facts: Facts, values: Mapping[str, str]) -> TrainerError | None:
    """A VPC can have one endpoint with private DNS names per service."""
    if facts.vpc is None or not values.get("SubnetIds"):
        return None
    rows = [row["Properties"].get("ServiceName") for row in template["Resources"].values()]
    needed = {row["Fn::Sub"].replace("${AWS::Region}", facts.region) for row in rows if row}
    both = sorted(needed & set(facts.vpc.private_services))
    if not both:
        return None
    return SettingsError(
        f"the VPC has endpoints with private names for {', '.join(both)}, and AWS allows one per service; leave "
        "--endpoint-subnets out to use those, or delete them."
    )


# ---- checks of settings that need no call to AWS

ADDRESS = r"[^@\s,]+@[^@\s,]+\.[^@\s,.]+"
HOOK = r"ssm:/ddp-toolkit/[\w./-]+"
ACCOUNT = r"\d{12}"


def check_settings(options: SetUpOptions) -> None:
    """Raises SettingsError."""
    if bool(options.monthly_usd) != bool(options.email):
        raise SettingsError(
            "a budget needs both --monthly-usd and --email; give both, or --monthly-usd 0 alone to remove it."
        )
    if options.email and not re.fullmatch(ADDRESS, options.email):
        raise SettingsError(f"--email {options.email!r} is not an address; give one such as you@example.org.")
    if options.queue and options.no_queue:
        raise SettingsError("--queue and --no-queue contradict each other; give one of them.")
    if options.queue and options.queue.partition(":")[0].endswith(FOR_EC2):
        raise SettingsError(f"--queue {options.queue}: names that end in {FOR_EC2} are those of launch.ec2's queues.")
    _check_notify(options)
    if options.log_days is not None:
        _check_log_days(options.log_days)
    if options.region is not None:
        check_region(options.region)


def _check_notify(options: SetUpOptions) -> None:
    if options.notify is None:
        return
    if options.no_notify:
        raise SettingsError("--notify and --no-notify contradict each other; give one of them.")
    if options.notify.startswith(("https:", "http:")):  # who has it can post there; it is in no plan, log or template
        raise SettingsError(
            "the address of a webhook is a secret: put it into a file, run aws ssm put-parameter --type SecureString "
            "--name /ddp-toolkit/webhook --value file://FILE, and give --notify ssm:/ddp-toolkit/webhook."
        )
    if not re.fullmatch(f"{ADDRESS}|{HOOK}", options.notify):
        raise SettingsError(
            f"--notify {options.notify!r} is no address; give one such as you@example.org, or "
            "ssm:/ddp-toolkit/webhook for a webhook."
        )


def _check_log_days(days: int) -> None:
    allowed = read(filled("0" * 12, "us-east-1"))["Parameters"]["LogDays"]["AllowedValues"]
    if days in allowed:
        return
    below = [value for value in allowed if value < days]
    above = [value for value in allowed if value > days]
    nearest = " or ".join(str(value) for value in (*below[-1:], *above[:1]))
    raise SettingsError(f"--log-days {days} is not a period that CloudWatch offers; give {nearest}.")


def check_account(account: str) -> None:
    """Raises SettingsError."""
    if not re.fullmatch(ACCOUNT, account):
        raise SettingsError(f"--account {account!r} is not an account id; give its 12 digits, such as 123456789012.")
