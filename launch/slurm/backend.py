"""The Slurm backend for the rest of the toolkit: one sbatch script per job."""

from pathlib import Path

from launch.core.backend import Backend, Demand, Place
from launch.core.options import whole
from launch.slurm.options import SlurmOptions
from trainer.errors import SettingsError


def _place(demand: Demand) -> Place:
    """An equal part of the GPUs on each node that the options ask for; a process per GPU, or one for dp."""
    if demand.gpus is None:
        return Place(demand.options, None)
    nodes = whole(demand.options, "nodes", 1)
    if demand.gpus % nodes:
        raise SettingsError(f"gpus: {demand.gpus} do not divide among {nodes} nodes; change one of them.")
    per_node = "nproc_per_node" if demand.on_cpu else "gpus_per_node"
    return Place({**demand.options, per_node: demand.gpus // nodes}, demand.gpus)


def _held_s(folder: Path) -> float:
    """Seconds that the job's starts had their nodes, all together; the queue costs nothing."""
    from launch.slurm.folder import read_folder

    whole = [start for start in read_folder(folder).starts if {"began", "ended"} <= start.keys()]
    return sum(float(start["ended"] - start["began"]) for start in whole)


BACKEND = Backend(
    name="slurm",
    about="a Slurm cluster",
    options=SlurmOptions,
    place=_place,
    # A progress bar would fill the job's log.
    defaults={"progress": False},
    shares_folders=True,
    needs_wait_flag=True,
    outlives_launcher=True,
    # Slurm's jobs inherit the environment of sbatch, and must not end with the process that followed them.
    marks_children=False,
    held_s=_held_s,
    batch="launch.slurm.batch:submit",
)
