"""Options of launch.slurm in addition to the trainer's settings; flags, YAML keys and help are derived from them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from launch.core.jobs import Formatted, JobOptions
from launch.core.options import NEW, Options, Place, WordList
from trainer.settings.argparser import IS_PATH


class SlurmOptions(Options):
    """Which nodes, for how long, on whose account, and in which software the ranks run."""

    nodes: int = Field(1, ge=1, description="number of nodes")
    gpus_per_node: int | None = Field(None, ge=0, description="GPUs per node (default: 1, or 0 with --device cpu)")
    gpu_type: str | None = Field(None, description="GPU type as Slurm names it, such as a100 (default: any)")
    gres: bool = Field(False, description="ask for GPUs with --gres=gpu:N, on clusters without --gpus-per-node")
    nproc_per_node: int | None = Field(
        None, ge=1, description="processes per node (default: one per GPU, or 1 without GPUs)"
    )
    cpus_per_task: int | None = Field(None, ge=1, description="CPUs per process (default: the partition's)")
    mem: str | None = Field(
        None,
        description="memory per node, such as 64G (default: the partition's)",
        json_schema_extra={"metavar": "MEMORY"},
    )
    time: str = Field(
        "4:00:00", description="time limit of each start, as Slurm writes it; the job then requeues itself"
    )
    partition: str | None = Field(None, description="partition, or several, as A,B (default: the cluster's)")
    account: str | None = Field(None, description="account to charge (default: yours)")
    qos: str | None = Field(None, description="quality of service (default: yours)")
    constraint: str | None = Field(
        None, description="node features that are required", json_schema_extra={"metavar": "FEATURES"}
    )
    nodelist: WordList = Field((), description="nodes that the job must get", json_schema_extra={"metavar": "NODE,..."})
    exclude: WordList = Field(
        (), description="nodes that the job must not get", json_schema_extra={"metavar": "NODE,..."}
    )
    reservation: str | None = Field(None, description="reservation to run in")
    exclusive: bool = Field(False, description="do not share the nodes with other jobs")
    mail: str | None = Field(
        None,
        description="address that Slurm notifies when the job ends, fails or is requeued",
        json_schema_extra={"metavar": "ADDRESS"},
    )
    sbatch: str = Field(
        "",
        description="more flags for sbatch, as one string, such as --sbatch='--switches=1'",
        json_schema_extra={"metavar": "FLAGS"},
    )

    job_name: str | None = Field(
        None, description="letters, digits and hyphens (default: from data set, model and time)"
    )
    new: bool = NEW
    max_restarts: int = Field(10, ge=0, description="times to requeue after a time limit, a preemption or a lost node")
    save_before_s: int = Field(120, ge=1, le=65_535, description="seconds before the time limit at which to save")
    launcher: Literal["srun", "torchrun"] = Field(
        "srun", description="srun: one task per process; torchrun: one task per node"
    )
    setup: str = Field(
        "",
        description="shell commands to run before the training, such as 'module load cuda'",
        json_schema_extra={"metavar": "COMMAND"},
    )

    container_image: Place | None = Field(
        None,
        description="image for Pyxis, or for the EDF that is written for the job",
        json_schema_extra={"metavar": "IMAGE"},
    )
    container_mounts: Annotated[WordList, IS_PATH] = Field(
        (),
        description="HOST:CONTAINER[:flags],...; job folder and data are mounted anyway",
        json_schema_extra={"metavar": "HOST:CONTAINER,..."},
    )
    container_runtime: Literal["pyxis", "edf"] = Field(
        "pyxis", description="pyxis (Enroot), or edf for CSCS's container engine"
    )
    container_edf: Path | None = Field(
        None,
        description="name or file of an EDF of your own, for CSCS's container engine",
        json_schema_extra={"metavar": "NAME|FILE"},
    )

    container_nccl_hook: str | None = Field(
        None,
        description="variant of CSCS's hook for NCCL over Slingshot, or none (default: cuda12 with --gpus-per-node)",
    )

    wait: bool = Field(True, description="follow the job to its end and exit with the training's exit code")
    detach: bool = Field(False, description="same as --no-wait: return once the job is submitted; see attach")


class AttachOptions(JobOptions):
    outcome: Path | None = Field(None, description="folder to write outcome.json into: state, exit code, seconds")


class QueueLogsOptions(JobOptions, Formatted):
    follow: bool = Field(False, description="-f: show new lines until the job ends")


# Verbs with other options than in launch.core.jobs.
VERB_OPTIONS: dict[str, type[Options]] = {"logs": QueueLogsOptions, "attach": AttachOptions}
