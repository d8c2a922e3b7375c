"""What launch.forecast adds to the trainer's settings; flags, YAML keys and help follow from it."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from launch.core.options import WordList, split


def _some(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("must be one at least")
    return values


class ForecastOptions(BaseModel):
    """Which machines are compared, and by what."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    instance_type: Annotated[WordList, AfterValidator(_some)] = Field(
        ("g5.2xlarge", "g5.12xlarge", "p4d.24xlarge"),
        description="EC2's names, or SageMaker's ml.* at its prices, separated by commas",
    )
    nodes: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(split), AfterValidator(_some)] = Field(
        (1, 2, 4), description="how many of them, such as 1,2,4"
    )
    gpus_per_node: int | None = Field(None, ge=1, description="GPUs (or CPU ranks) in use of each; none: all, or 1 CPU")
    from_run: Annotated[tuple[Path, ...], BeforeValidator(split)] = Field(
        (), description="folders of runs or sweeps that say how fast it really is"
    )
    sort: Literal["cost", "time"] = Field("cost", description="what the first row is best at")
    spot: bool = Field(False, description="rank by spot prices, which are an estimate")
    ebs: bool = Field(True, description="images come from EBS volumes; --no-ebs: from faster disks")
    images: int | None = Field(None, ge=1, description="training images of a data set of your own")
    image_kb: float = Field(110.0, gt=0, description="10^3 bytes of a mean image of --images")
    format: Literal["table", "json"] = Field("table", description="json: for programs; --json says the same")


class PublishedOptions(BaseModel):
    """For the verb `published`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    format: Literal["table", "json"] = Field("table", description="json: for programs")
