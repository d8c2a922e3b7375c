"""The local backend's entry in the table of backends: torchrun on this machine."""

from launch.core.backend import Backend, Demand, Place, Values, adopt_folder, adopt_gpus
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


def _adopt(values: Values) -> Values:
    """A job file's settings: a process for each GPU of its instance type, and its folder of data."""
    return adopt_folder(adopt_gpus(values, "nproc_per_node", least=1))


BACKEND = Backend(
    name="local",
    adopt=_adopt,
    about="torchrun on this machine",
    options=LocalOptions,
    place=_place,
    shares_folders=True,
    runs_here=True,
    looks_up=False,
)
