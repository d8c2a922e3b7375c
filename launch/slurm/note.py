"""What a job's folder says of the job: its name, and Slurm's ids of its submissions."""

import json
from collections.abc import Sequence
from pathlib import Path

from launch.slurm.backend import BACKEND
from launch.slurm.names import SPEC
from trainer.files import write_atomically


def note(folder: Path, name: str, ids: Sequence[str], **more: object) -> None:
    """Writes it.  more: of jobs that are submitted together, see folder.py."""
    spec = {"job": name, "backend": BACKEND.name, "ids": list(ids), **more}
    write_atomically(folder / SPEC, json.dumps(spec, indent=1) + "\n")
