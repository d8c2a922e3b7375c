"""What launch.local adds to the trainer's settings; flags, YAML keys and help follow from it."""

from pydantic import BaseModel, ConfigDict, Field


class LocalOptions(BaseModel):
    """How many processes train here."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    nproc_per_node: int = Field(1, ge=1, description="number of processes: one per GPU, or per few CPU cores")
    max_restarts: int = Field(0, ge=0, description="times to restart from the newest checkpoint if a process dies")
