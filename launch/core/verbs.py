"""Options that the verbs of every backend take."""

from pydantic import BaseModel, ConfigDict, Field


class InRegion(BaseModel):
    """What every verb takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    region: str | None = Field(None, description="AWS region; none: that of AWS's own configuration")


class OfJob(InRegion):
    """What a verb takes that is about one job."""

    job: str | None = Field(None, description="its name; the flag may be left out")
