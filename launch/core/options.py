"""Option types and models that several commands share."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def split(value: Any) -> Any:
    """'a,b' -> ['a', 'b'], and 1 -> [1]; anything else is left to the field's own type."""
    if isinstance(value, int):
        return [value]
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


# a,b on the command line, a list in YAML.
WordList = Annotated[tuple[str, ...], BeforeValidator(split)]


class RegionOptions(BaseModel):
    """What every verb takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    region: str | None = Field(None, description="AWS region (default: from your AWS configuration)")


class JobOptions(RegionOptions):
    """What a verb takes that is about one job."""

    job: str | None = Field(None, description="name of the job; also without the flag, as the first word")
