"""Options of launch.local in addition to the trainer's settings; flags, YAML keys and help are derived from them."""

from pydantic import Field

from launch.core.options import Options


class LocalOptions(Options):
    """The processes on this machine."""

    nproc_per_node: int = Field(1, ge=1, description="number of processes: one per GPU, or per few CPU cores")
    max_restarts: int = Field(0, ge=0, description="times to restart from the newest checkpoint if a process dies")
