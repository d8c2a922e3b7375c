"""A job's folder as it is on disk.  Reads only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.slurm.backend import BACKEND
from launch.slurm.names import SCRIPT, SPEC, STARTS


@dataclass(frozen=True)
class JobFolder:
    """script: as it was submitted; ids: Slurm's, one per submission; starts: how each start ended, see job.sbatch."""

    path: Path
    exists: bool
    script: str | None
    ids: tuple[str, ...]
    starts: tuple[Mapping[str, Any], ...]

    @property
    def is_ours(self) -> bool:
        return self.script is not None

    @property
    def slurm_endings(self) -> int:
        """How many starts were ended by Slurm: the job was cancelled, or its nodes were taken away for a while."""
        return sum(start["then"] == "slurm" for start in self.starts)

    @property
    def last_start(self) -> Mapping[str, Any] | None:
        """The start that ended the newest submission for good; None: it has not ended, or only Slurm knows how."""
        starts = [start for start in self.starts if self.ids and start["job"] == self.ids[-1]]
        return starts[-1] if starts and starts[-1]["then"] not in ("requeue", "slurm") else None


def read_folder(path: Path) -> JobFolder:
    """The job folder at `path`, which need not exist.  An incomplete line of its starts is left out."""
    script, spec = path / SCRIPT, path / SPEC
    return JobFolder(
        path=path,
        exists=path.exists() and any(path.iterdir()),
        script=script.read_text() if script.exists() else None,
        ids=tuple(json.loads(spec.read_text())["ids"]) if spec.exists() else (),
        starts=tuple(_read_starts(path / STARTS)),
    )


def _read_starts(path: Path) -> list[Mapping[str, Any]]:
    starts = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            starts.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return starts


def name_in(folder: Path) -> str | None:
    """The name of the job in a folder; None: launch.slurm has no job there."""
    try:
        spec = json.loads((folder / SPEC).read_text())
        return str(spec["job"]) if spec["backend"] == BACKEND.name else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def find_named(job: str, cwd: Path) -> Path | None:
    """The folder of a job of that name which --run-dir put below runs/, or into a sweep there."""
    specs = (*cwd.glob(f"runs/*/{SPEC}"), *cwd.glob(f"runs/*/*/{SPEC}"))
    return next((spec.parent for spec in sorted(specs) if name_in(spec.parent) == job), None)
