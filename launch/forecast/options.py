"""The options of launch.forecast beside the trainer's settings."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from launch.core.options import Options, WordList, split
from launch.core.price import FILL_VOLUMES, Pay
from launch.core.training.options import END, OUR_SETTINGS
from trainer.errors import SettingsError
from trainer.settings.argparser import flag

# Options that also apply to a script; the others are about the built-in trainer's data and compute.
FOR_SCRIPTS = ("instance_type", "nodes", "gpus_per_node", "from_run", "sort", "spot", "format")


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


class ScriptOptions(Options):
    """The script to forecast, in place of the built-in trainer."""

    script: Path | None = Field(
        None, description="forecast this script from its runs below --from-run; its arguments follow --"
    )
    module: str | None = Field(None, description="the same for a module, as in `python -m MODULE`; -m for short")

    @property
    def is_given(self) -> bool:
        return self.script is not None or self.module is not None


def check_script(script: ScriptOptions, given: Collection[str], arguments: Sequence[str]) -> None:
    """Raise SettingsError for settings that contradict a script, or its absence.

    given: the names of all settings that the user gave; arguments: the words after --.
    """
    if not script.is_given:
        if arguments:
            raise SettingsError(f"{END} is followed by a script's arguments, and there is none; give --script FILE.")
        return
    if script.script is not None and script.module is not None:
        raise SettingsError("--script and --module both name what to forecast; give one of them.")
    for name in given:
        if name in OUR_SETTINGS:
            raise SettingsError(
                f"{flag(name)} is a setting of our trainer, which --script replaces; if the script has one of that "
                f"name, write it after {END} as its runs had it."
            )
        if name in ForecastOptions.model_fields and name not in FOR_SCRIPTS:
            raise SettingsError(
                f"{flag(name)} is for forecasts of our trainer; that of a script rests on the times of its runs alone, "
                "so leave it out."
            )


class PublishedOptions(Options):
    """Options of the verb `published`."""

    format: Literal["table", "json"] = Field("table", description="output format")
