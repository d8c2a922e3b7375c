"""Options of `python -m launch.infra`; flags and help follow from them."""

import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from launch.core.options import DRY_RUN, DryRun, RegionOptions, WordList
from trainer.settings.argparser import as_text, flag

UP, DOWN = "python -m launch.infra up", "python -m launch.infra down"

YES = Field(False, description="skip the confirmation")


class SetUpOptions(RegionOptions):
    """What the stack holds.  A setting that is not given keeps its value; a new stack gets the template's default."""

    monthly_usd: float | None = Field(
        None,
        ge=0,
        description="monthly budget of the whole account in USD, with --email; 0 removes it (default: unchanged)",
    )
    email: str | None = Field(
        None, description="address notified at 80 % of the budget, and when 100 % is forecast; with --monthly-usd"
    )
    log_days: int | None = Field(
        None, gt=0, description="days that CloudWatch keeps logs (default: unchanged; new stack: 30)"
    )
    old_version_days: int | None = Field(
        None, gt=0, description="days that S3 keeps overwritten objects (default: unchanged; new stack: 7)"
    )
    sweep_minutes: int | None = Field(
        None, ge=5, le=1440, description="minutes between leak sweeps (default: unchanged; new stack: 60)"
    )
    vpc_id: str | None = Field(
        None, description="VPC that gets a gateway endpoint to S3, which is free; '' removes it (default: unchanged)"
    )
    endpoint_subnets: WordList | None = Field(
        None,
        description="subnets of that VPC without internet access, which get interface endpoints; '' removes them "
        "(default: unchanged)",
    )
    security_group: bool | None = Field(
        None,
        description="create a security group in the VPC for launch.ec2 --security-group (default: unchanged)",
    )

    queue: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?(:[1-9][0-9]{0,4})?$",
        description="create queues for --queue of launch.sagemaker, whose jobs have at most MAX instances at a time, "
        "and of launch.ec2 (default: unchanged; new queue: 4)",
        json_schema_extra={"metavar": "NAME[:MAX]"},
    )
    no_queue: bool = Field(False, description="remove the queues")
    notify: str | None = Field(
        None,
        description="send mail to an address, or call the webhook whose address is in a SecureString of Systems "
        "Manager, ssm:/ddp-toolkit/NAME, when a job ends, logs nothing for an hour, or has spent half of its time "
        "limit; no launcher has to run (default: unchanged; new stack: nothing)",
        json_schema_extra={"metavar": "ADDRESS"},
    )
    no_notify: bool = Field(False, description="send nothing any more")


class PlanOptions(SetUpOptions):
    """Options of the verb plan."""


class UpOptions(SetUpOptions):
    yes: bool = YES
    dry_run: DryRun = DRY_RUN


class ShowOptions(RegionOptions):
    drift: bool = Field(False, description="check for changes made outside the stack; takes about a minute")


class DownOptions(RegionOptions):
    keep_data: bool = Field(False, description="keep bucket, repository and logs with their contents")
    yes: bool = YES
    dry_run: DryRun = DRY_RUN


class TemplateOptions(RegionOptions):
    account: str = Field("123456789012", description="account id; the bucket's name contains it")
    queue: bool = Field(False, description="that of the queues, which are a stack of their own")
    notify: bool = Field(False, description="that of --notify, which is a stack of its own, too")


def parameters(options: SetUpOptions) -> Mapping[str, str]:
    """Template parameters that follow from the command line alone."""
    given: dict[str, Any] = {
        "LogDays": options.log_days,
        "OldVersionDays": options.old_version_days,
        "SweepMinutes": options.sweep_minutes,
        "VpcId": text_of(options, "vpc_id"),
        "SubnetIds": text_of(options, "endpoint_subnets"),
    }
    if options.security_group is not None:
        given["SecurityGroup"] = "yes" if options.security_group else "no"
    return {name: str(value) for name, value in given.items() if value is not None}


def up_command(options: SetUpOptions) -> str:
    """The command that applies what was given, also where it was given empty."""
    given = [name for name in type(options).model_fields if name in options.model_fields_set]
    return shlex.join(
        [*UP.split(), *(word for name in given for word in (flag(name), as_text(getattr(options, name))))]
    )


def text_of(options: SetUpOptions, name: str) -> str | None:
    """The value of a text or list setting; "" where it was given empty, None where it was not given."""
    value = getattr(options, name)
    if name not in options.model_fields_set:
        return None
    return ",".join(value) if isinstance(value, tuple) else value or ""
