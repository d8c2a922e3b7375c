"""Jobs of every kind that a script is rendered for."""

import json
from pathlib import Path
from typing import Any

from launch.core.job import Job
from launch.core.training.classifier import Classifier
from launch.slurm.checks import resolve
from launch.slurm.folder import JobFolder
from launch.slurm.names import SCRIPT, SPEC, STARTS
from launch.slurm.options import SlurmOptions
from launch.slurm.planner import Facts, SlurmPlan, plan
from launch.slurm.script import ResolvedJob
from trainer.config import TrainConfig

GPUS: dict[str, Any] = {"nodes": 2, "gpus_per_node": 2, "cpus_per_task": 2, "time": "20", "job_name": "digits"}
EVERY_KIND: dict[str, dict[str, Any]] = {
    "srun": GPUS | {"gpu_type": "a100", "mem": "1G", "constraint": "fast", "mail": "me@example.org",
                    "sbatch": "--switches=1 --nice=5", "setup": "module load cuda && export A='b c'"},
    "torchrun": GPUS | {"launcher": "torchrun", "partition": "main", "exclusive": True, "nodelist": ("n0", "n1")},
    "pyxis": GPUS | {"container_image": "ghcr.io#me/toolkit:1", "container_mounts": ("/data/imagenet:/data:ro",)},
    "edf": GPUS | {"container_image": "/images/toolkit.sqsh", "container_runtime": "edf", "launcher": "torchrun"},
    "own-edf": GPUS | {"container_edf": Path("toolkit")},
}  # fmt: skip


def planned(
    options: dict[str, Any], cwd: Path = Path("/home/me"), facts: Facts | None = None, **train: Any
) -> SlurmPlan:
    """The plan of a job; without facts, for an empty folder and without Slurm."""
    job = Job(Classifier(TrainConfig(**train)), SlurmOptions(**options))
    resolved_options, processes = resolve(job)
    name = resolved_options.job_name or "digits-cnn"
    folder = JobFolder(cwd / "runs" / name, exists=False, script=None, ids=(), starts=())
    return plan(job, resolved_options, processes, name, facts or Facts(folder, cwd, "/venv/bin/python"))


def resolved(kind: str, cwd: Path = Path("/home/me")) -> ResolvedJob:
    """A job of that kind, with everything resolved."""
    return planned(EVERY_KIND[kind], cwd, model="cnn", dataset="cifar10", epochs=3).payload.job


def left(folder: Path) -> Path:
    """What a job leaves that has trained a script."""
    folder.mkdir(parents=True)
    (folder / SCRIPT).write_text("#!/bin/bash\n")
    (folder / SPEC).write_text(json.dumps({"job": folder.name, "backend": "slurm", "ids": ["7"]}))
    (folder / STARTS).write_text('{"job": "7", "code": 0, "then": "done"}\n')
    return folder
