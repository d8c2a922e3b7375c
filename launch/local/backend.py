"""The local backend for the rest of the toolkit: torchrun on this machine."""

from launch.core.backend import Backend, Place, Request
from launch.core.numbers import whole
from launch.local.options import LocalOptions

ALONE = ("dp", "single")  # strategies of one process


def _place(request: Request) -> Place:
    """A process per GPU; one process that sees all of them for dp."""
    if request.strategy in ALONE:
        replicas = request.gpus if request.strategy == "dp" else 1
        return Place({**request.options, "nproc_per_node": 1}, replicas, request.gpus)
    processes = request.gpus or whole(request.options, "nproc_per_node", 1)
    return Place({**request.options, "nproc_per_node": processes}, processes)


BACKEND = Backend(
    name="local",
    about="torchrun on this machine",
    options=LocalOptions,
    place=_place,
    shares_folders=True,
    looks_up=False,
)
