"""What `python -m launch.infra` can be asked for; flags and help follow from it."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from launch.core.options import RegionOptions, WordList


class SetUpOptions(RegionOptions):
    """What the stack shall hold.  Where nothing is given it stays as it is, or gets the template's default."""

    monthly_usd: float | None = Field(None, ge=0, description="budget of the whole account, USD a month; 0: none")
    email: str | None = Field(None, description="who hears of 80 % and 100 % of the budget; '': nobody any more")
    log_days: int | None = Field(None, gt=0, description="days that CloudWatch keeps what nodes say; first: 30")
    old_version_days: int | None = Field(None, gt=0, description="days that S3 keeps what was overwritten; first: 7")
    sweep_minutes: int | None = Field(
        None, ge=5, le=1440, description="minutes from leak sweep to leak sweep; first: 60"
    )
    vpc_id: str | None = Field(
        None, description="vpc-...: gets a way to S3 within AWS, which is free; '': none any more"
    )
    endpoint_subnets: WordList | None = Field(
        None, description="subnets of it without a way to the internet: interface endpoints; '': none any more"
    )
    security_group: bool | None = Field(None, description="a group in the VPC, for launch.ec2 --security-group")


class PlanOptions(SetUpOptions):
    """Of the verb plan."""


YES = Field(False, description="do not ask: yes, what the plan says is meant")


class UpOptions(SetUpOptions):
    yes: bool = YES
    dry_run: bool | Literal["json"] = Field(
        False, description="print every request and do nothing; --dry-run=json for programs"
    )


class ShowOptions(RegionOptions):
    drift: bool = Field(False, description="ask AWS now what was changed by hand; takes about a minute")


class DownOptions(RegionOptions):
    keep_data: bool = Field(False, description="leave bucket, repository and logs where they are, with what they hold")
    yes: bool = YES
    dry_run: bool | Literal["json"] = Field(
        False, description="print every request and do nothing; --dry-run=json for programs"
    )


class TemplateOptions(RegionOptions):
    account: str = Field("123456789012", description="whose: it is in the bucket's name")


def parameters(options: SetUpOptions) -> Mapping[str, str]:
    """The template's parameters that the command line gives, without what must be looked up."""
    given: dict[str, Any] = {
        "MonthlyUsd": None if options.monthly_usd is None else f"{options.monthly_usd:.12g}",
        "Email": text_of(options, "email"),
        "LogDays": options.log_days,
        "OldVersionDays": options.old_version_days,
        "SweepMinutes": options.sweep_minutes,
        "VpcId": text_of(options, "vpc_id"),
        "SubnetIds": text_of(options, "endpoint_subnets"),
        "SecurityGroup": None if options.security_group is None else ("yes" if options.security_group else "no"),
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def text_of(options: SetUpOptions, name: str) -> str | None:
    """What was given for a setting that is text or words; "" if that was nothing, None if it was not given at all."""
    value = getattr(options, name)
    if name not in options.model_fields_set:
        return None
    return ",".join(value) if isinstance(value, tuple) else value or ""
