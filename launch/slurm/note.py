"""What a job's folder says of the job: its name, Slurm's ids of its submissions, and what it trains where."""

import json
from collections.abc import Sequence
from pathlib import Path

from launch.core.earlier import COUNTING
from launch.slurm.backend import BACKEND
from launch.slurm.names import SPEC
from launch.slurm.script import ResolvedJob
from trainer.files import write_atomically


def details(job: ResolvedJob) -> dict[str, object]:
    """The details with which another job of the same script compares itself: see launch.core.earlier."""
    return {"train": list(job.train.words), "where": where(job)}


def where(job: ResolvedJob) -> dict[str, object]:
    """The machines of a job, in the words of the other backends."""
    options = job.options
    gpus = options.gpus_per_node or 0
    of_type = f"{options.gpu_type} " if options.gpu_type else ""
    each = f"{gpus} {of_type}GPU{'s' * (gpus != 1)}" if gpus else "no GPU"
    kind = f"{each} in {options.partition or 'the default partition'}"
    counting = options.model_dump(mode="json", include=set(COUNTING))
    return {**counting, "nodes": options.nodes, "instance_type": [kind], "nproc_per_node": job.processes}


def note(folder: Path, name: str, ids: Sequence[str], **more: object) -> None:
    """Writes it.  more: of jobs that are submitted together, see folder.py."""
    spec = {"job": name, "backend": BACKEND.name, "ids": list(ids), **more}
    write_atomically(folder / SPEC, json.dumps(spec, indent=1) + "\n")
