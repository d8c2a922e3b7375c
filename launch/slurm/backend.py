"""The Slurm backend's entry in the table of backends: its options, and how it provides a number of GPUs."""

import math
from pathlib import Path
from typing import Any

from launch.core.backend import Backend, Demand, Place, Values, adopt_folder, adopt_gpus
from launch.core.options import whole
from launch.slurm.options import SlurmOptions
from trainer.errors import SettingsError, one_line


def _place(demand: Demand) -> Place:
    """The GPUs in equal shares on the nodes of the options; a process per GPU, or one for dp."""
    if demand.gpus is None:
        return Place(demand.options, None)
    nodes = whole(demand.options, "nodes", 1)
    if demand.gpus % nodes:
        raise SettingsError(f"gpus: {demand.gpus} do not divide among {nodes} nodes; change one of them.")
    per_node = "nproc_per_node" if demand.on_cpu else "gpus_per_node"
    return Place({**demand.options, per_node: demand.gpus // nodes}, demand.gpus)


def _adopt(values: Values) -> Values:
    """A job file's settings: the GPUs of its instance type, its time limit for each start, and its folder of data."""
    adopted = adopt_folder(adopt_gpus(values, "gpus_per_node"))
    if hours := adopted.pop("max_hours", None):
        adopted.setdefault("time", _minutes(hours))
    return adopted


def _minutes(hours: Any) -> str:
    """Hours as sbatch's --time, which takes whole minutes."""
    try:
        return str(max(1, math.ceil(float(hours) * 60)))
    except (ValueError, OverflowError) as error:
        raise SettingsError(f"max_hours {one_line(hours)}: must be a number.") from error


def _held_s(folder: Path) -> float:
    """Total seconds in which the job's starts held their nodes, without time in the queue."""
    from launch.slurm.folder import read_folder

    whole = [start for start in read_folder(folder).starts if {"began", "ended"} <= start.keys()]
    return sum(float(start["ended"] - start["began"]) for start in whole)


BACKEND = Backend(
    name="slurm",
    about="a Slurm cluster",
    options=SlurmOptions,
    adopt=_adopt,
    place=_place,
    # A progress bar would fill the job's log.
    defaults={"progress": False},
    shares_folders=True,
    outlives_launcher=True,
    # Jobs inherit sbatch's environment, and must not end with the process that follows them.
    marks_children=False,
    held_s=_held_s,
    batch="launch.slurm.batch:submit",
)
