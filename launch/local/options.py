"""What launch.local adds to the trainer's settings; flags, YAML keys and help follow from it."""

from pydantic import Field

from launch.core.options import Options


class LocalOptions(Options):
    """How many processes train here."""

    nproc_per_node: int = Field(1, ge=1, description="number of processes: one per GPU, or per few CPU cores")
    max_restarts: int = Field(0, ge=0, description="times to restart from the newest checkpoint if a process dies")
