"""A backend that does nothing: what the rest of the toolkit must know of one."""

from pydantic import BaseModel, ConfigDict, Field

from launch.core.backend import Backend, Demand, Place


class NothingOptions(BaseModel):
    """Where nothing runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    seats: int = Field(1, ge=1, description="processes that do not train")


def _place(demand: Demand) -> Place:
    """A seat per process."""
    seats = demand.gpus or 1
    return Place({**demand.options, "seats": seats}, seats)


BACKEND = Backend(
    name="nothing",
    about="nowhere, for nothing",
    options=NothingOptions,
    place=_place,
    shares_folders=True,
    examination="launch.nothing.examination",
)
