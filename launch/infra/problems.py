"""What prevents a stack from being created or changed, each with a remedy.  Pure."""

from collections.abc import Mapping
from typing import Any

from launch.core.errors import AwsError
from launch.infra.facts import Facts, Stack
from launch.infra.options import DOWN, UP, SetUpOptions
from launch.infra.template import STACK
from trainer.errors import SettingsError, TrainerError

# States in which CloudFormation accepts no change.
STUCK = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED", "IMPORT_ROLLBACK_FAILED")


def problems_of(
    options: SetUpOptions, facts: Facts, template: Mapping[str, Any], values: Mapping[str, str]
) -> list[TrainerError]:
    """The reasons why the stack cannot be created or changed.  values: the parameters that it would have."""
    possible = (
        _budget_elsewhere(options, facts),
        _half_a_budget(options, values),
        _no_vpc(values),
        _in_the_way(facts),
        _stuck(facts.stack),
        _second_endpoints(template, facts, values),
    )
    return [problem for problem in possible if problem is not None]


def _budget_elsewhere(options: SetUpOptions, facts: Facts) -> TrainerError | None:
    if facts.owner_region and (options.monthly_usd or options.email):
        return SettingsError(
            f"an account has one budget; give --monthly-usd and --email with --region {facts.owner_region}."
        )
    return None


def _half_a_budget(options: SetUpOptions, values: Mapping[str, str]) -> TrainerError | None:
    has_amount, has_email = bool(float(values.get("MonthlyUsd") or 0)), bool(values.get("Email"))
    if has_amount != has_email and (options.monthly_usd or options.email):
        return SettingsError("a budget needs both --monthly-usd and --email; give the other one, too.")
    return None


def _no_vpc(values: Mapping[str, str]) -> TrainerError | None:
    if values.get("VpcId"):
        return None
    if values.get("SecurityGroup") == "yes":
        return SettingsError("--security-group needs a VPC; give --vpc-id, too.")
    if values.get("SubnetIds"):
        return SettingsError("--endpoint-subnets need a VPC; give --vpc-id, too.")
    return None


def _in_the_way(facts: Facts) -> TrainerError | None:
    """Resources that the stack cannot adopt.  They hold no data, but somebody may be using them."""
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
    ours = {row["Fn::Sub"].replace("${AWS::Region}", facts.region) for row in rows if row}
    both = sorted(ours & set(facts.vpc.private_services))
    if not both:
        return None
    return SettingsError(
        f"the VPC has endpoints with private names for {', '.join(both)}, and AWS allows one per service; leave "
        "--endpoint-subnets out to use those, or delete them."
    )
