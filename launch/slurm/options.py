"""What launch.slurm adds to the trainer's settings; flags, YAML keys and help follow from it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from launch.core.options import WordList


class SlurmOptions(BaseModel):
    """Which nodes, for how long, on whose account, and in which software the ranks run."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    nodes: int = Field(1, ge=1, description="machines")
    gpus_per_node: int | None = Field(None, ge=0, description="GPUs of each node; none: 1, with --device cpu 0")
    gpu_type: str | None = Field(None, description="what Slurm calls the GPUs, such as a100; none: any")
    nproc_per_node: int | None = Field(None, ge=1, description="processes per node; none: one per GPU, or one")
    cpus_per_task: int | None = Field(None, ge=1, description="CPUs per process; none: the partition's default")
    mem: str | None = Field(None, description="memory of each node, such as 64G; none: the partition's default")
    time: str = Field("4:00:00", description="limit of each start, as Slurm writes it; the job goes on after it")
    partition: str | None = Field(None, description="none: the cluster's default")
    account: str | None = Field(None, description="whose hours it takes; none: your default account")
    qos: str | None = Field(None, description="quality of service; none: your default")
    constraint: str | None = Field(None, description="features that nodes must have")
    nodelist: WordList = Field((), description="nodes that must be among them")
    exclude: WordList = Field((), description="nodes that must not be among them")
    reservation: str | None = Field(None, description="reservation to run in")
    exclusive: bool = Field(False, description="share the nodes with no other job")
    mail: str | None = Field(None, description="address that Slurm writes to when the job ends, fails or starts again")
    sbatch: str = Field("", description="more flags for sbatch, as one text, such as --sbatch='--switches=1'")

    job_name: str | None = Field(None, description="letters, digits, hyphens; none: made of data set, model and time")
    max_restarts: int = Field(
        10, ge=0, description="times to go on by itself after a time limit, a preemption or a lost node"
    )
    save_before_s: int = Field(120, ge=1, le=65_535, description="seconds before the time limit to save at")
    launcher: Literal["srun", "torchrun"] = Field(
        "srun", description="srun: a task per process; torchrun: one per node"
    )
    setup: str = Field("", description="shell commands before the training, such as 'module load cuda'")

    container_image: str | None = Field(None, description="image for Pyxis, or for an EDF that is written for the job")
    container_mounts: WordList = Field(
        (), description="HOST:CONTAINER[:flags],...; job folder and data come by themselves"
    )
    container_runtime: Literal["pyxis", "edf"] = Field(
        "pyxis", description="pyxis (Enroot), or CSCS's container engine"
    )
    container_edf: Path | None = Field(
        None, description="an EDF of your own for CSCS's container engine; a name or file"
    )

    wait: bool = Field(False, description="follow the job to its end, and end with the training's exit code")
