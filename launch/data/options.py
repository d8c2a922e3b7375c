"""Options of `python -m launch.data`; flags and help follow from them."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from launch.aws.published import check_name
from launch.core.options import DRY_RUN, DryRun, Place, RegionOptions, WordList
from trainer.errors import SettingsError


def _checked(value: Any) -> Any:
    try:
        return check_name(str(value))
    except SettingsError as error:
        raise ValueError(str(error)) from error


def _checked_key(value: Any) -> Any:
    """See https://docs.aws.amazon.com/ebs/latest/APIReference/API_StartSnapshot.html."""
    if not re.fullmatch(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+", str(value), re.ASCII):
        raise ValueError(
            f"{value} is not the ARN of a key, as arn:aws:kms:REGION:ACCOUNT:key/ID; an alias is not accepted."
        )
    return value


Name = Annotated[str, BeforeValidator(_checked)]
Key = Annotated[str, BeforeValidator(_checked_key)]


class PublishOptions(RegionOptions):
    source: Place | None = Field(
        None,
        description="folder of images, their archives, or what trainer.prepare made, here or as s3://BUCKET/FOLDER; "
        "may be given first, without the flag",
    )
    name: Name | None = Field(None, description="name of the data set in the account (default: the folder's)")
    to: Literal["both", "s3", "snapshot"] = Field("both", description="where to: S3, a snapshot for EC2, or both")
    prepared: Path | None = Field(
        None, description="folder for the shards of images that are not prepared yet (default: SOURCE-prepared)"
    )
    resize: int | None = Field(
        None, ge=32, description="shorter side of prepared images in pixels, at most (default: trainer.prepare's)"
    )
    plain: bool = Field(
        False, description="publish a folder as it is, for scripts that read its files; others are made into shards"
    )
    originals: bool = Field(False, description="keep every image byte for byte when they are prepared")
    work_dir: Path | None = Field(
        None, description="folder for the snapshot's file system, as large as the data (default: beside the shards)"
    )
    verify: Literal["all", "sample", "none"] = Field(
        "all", description="how much of the snapshot is read back and compared; sample: 100 blocks"
    )
    kms_key: Key | None = Field(None, description="ARN of the key for the snapshot (default: the account's for EBS)")
    connections: int = Field(16, ge=1, le=128, description="requests at a time")
    upload_mbit_s: float = Field(100.0, gt=0, description="this machine's rate to AWS, for the plan's times")
    replace: bool = Field(False, description="replace different content already published under this name")
    by: Literal["here", "instance", "cheaper"] = Field(
        "here",
        description="where to do the work: on this machine, on a temporary instance near S3, or wherever it costs less",
    )
    instance_type: str | None = Field(
        None, description="type of that instance (default: the cheapest that has room for the data)"
    )
    subnet: WordList = Field((), description="subnets for that instance (default: those of the default VPC)")
    max_hours: float = Field(12.0, gt=0, le=72, description="time limit of that instance")
    max_usd: float | None = Field(None, gt=0, description="refuse an instance that could cost more")
    yes: bool = Field(False, description="start that instance without a question, which --max-usd answers as well")
    dry_run: DryRun = DRY_RUN


class NameOptions(RegionOptions):
    name: Name | None = Field(None, description="name of the data set; may be given first, without the flag")


class CopyOptions(NameOptions):
    to_region: str | None = Field(None, description="region to copy to")
    kms_key: Key | None = Field(None, description="ARN of that region's key (default: the account's for EBS there)")
    dry_run: DryRun = DRY_RUN


class DeleteOptions(NameOptions):
    yes: bool = Field(False, description="skip the confirmation")
    dry_run: DryRun = DRY_RUN
