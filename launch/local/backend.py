"""The local backend's entry in the table of backends: torchrun on this machine."""

from launch.core.backend import Backend, Demand, Place
from launch.core.options import whole
from launch.local.options import LocalOptions

ALONE = ("dp", "single")  # strategies of one process


def _place(demand: Demand) -> Place:
    """A process per GPU, or one process with all GPUs for dp."""
    if demand.strategy in ALONE:
        replicas = demand.gpus if demand.strategy == "dp" else 1
        return Place({**demand.options, "nproc_per_node": 1}, replicas, demand.gpus)
    processes = demand.gpus or whole(demand.options, "nproc_per_node", 1)
    return Place({**demand.options, "nproc_per_node": processes}, processes)


BACKEND = Backend(
    name="local",
    about="torchrun on this machine",
    options=LocalOptions,
    place=_place,
    shares_folders=True,
    runs_here=True,
    looks_up=False,
)
