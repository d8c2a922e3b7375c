"""The options of launch.forecast beside the trainer's settings."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from launch.core.options import Options, WordList, split
from launch.core.price import FILL_VOLUMES, Pay


def _some(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("needs at least one value")
    return values


class ForecastOptions(Options):
    """Which machines are compared, and how they are ranked."""

    instance_type: Annotated[WordList, AfterValidator(_some)] = Field(
        ("g5.2xlarge", "g5.12xlarge", "p4d.24xlarge"),
        description="instance types; ml.* names have SageMaker's prices",
    )
    nodes: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(split), AfterValidator(_some)] = Field(
        (1, 2, 4), description="numbers of instances to compare, such as 1,2,4"
    )
    gpus_per_node: int | None = Field(None, ge=1, description="GPUs (or CPU ranks) to use (default: all, or 1 CPU)")
    from_run: Annotated[tuple[Path, ...], BeforeValidator(split)] = Field(
        (), description="folders of runs or sweeps whose measurements correct the forecast"
    )
    sort: Literal["cost", "time"] = Field("cost", description="rank by cost or time")
    spot: bool = Field(False, description="rank by estimated spot prices")
    ebs: bool = Field(True, description="read images from EBS volumes; --no-ebs: from faster disks")
    fill_volumes: Pay = Field("auto", description=FILL_VOLUMES)
    images: int | None = Field(None, ge=1, description="number of training images, for your own data set")
    image_kb: float = Field(110.0, gt=0, description="mean size of an image of --images, in kB")
    prepared: bool = Field(False, description="images as trainer.prepare makes them: shorter side 256 px, 30 kB each")
    decoded_per_vcpu: float | None = Field(
        None, gt=0, description="images/s that one of their vCPUs decodes, as measured by trainer.tune"
    )
    ceilings: bool = Field(False, description="show what each part of the machines allows, in images/s")
    format: Literal["table", "json"] = Field("table", description="output format; --json is short for --format json")


class PublishedOptions(Options):
    """Options of the verb `published`."""

    format: Literal["table", "json"] = Field("table", description="output format")
