"""Jobs that are submitted together, as job arrays: how they are divided, and an array's script.  Pure.

Each task of an array becomes one job, with the folder and the script that the job would have by itself.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.core import templates
from launch.slurm.names import ARRAY_LOG, comment_of
from launch.slurm.script import ResolvedJob, directives, render, with_directives

# The flags of sbatch that are a job's own.  Tasks share a name, so that a singleton would wait for its own array.
OWN = re.compile(r"--(job-name|comment|output)=|--dependency=singleton$")


@dataclass(frozen=True)
class Array:
    """name: of all arrays of one sweep; folder: of this one, whose name tells it from any other; tasks: in order."""

    name: str
    folder: Path
    tasks: Sequence[ResolvedJob]
    at_once: int

    @property
    def token(self) -> str:
        """The array's mark in the folder of each of its jobs."""
        return self.folder.name

    @property
    def directives(self) -> list[str]:
        """sbatch's flags."""
        return [
            f"--job-name={self.name}",
            f"--comment={comment_of(self.name)}",
            f"--array=0-{len(self.tasks) - 1}%{self.at_once}",
            f"--output={str(self.folder).replace('%', '%%')}/{ARRAY_LOG}",
            *_shared(self.tasks[0]),
        ]

    @property
    def script(self) -> str:
        folders = [str(task.folder) for task in self.tasks]
        digests = [_digest(render(task)) for task in self.tasks]
        values = {"ARRAY": self.token, "FOLDERS": folders, "DIGESTS": digests}
        return with_directives(templates.fill("slurm/array.sbatch", values), self.directives)


def _digest(script: str) -> str:
    """Of a script as the shell reads it, without the ends of lines at its end, and prints it, with one."""
    return hashlib.sha256(script.rstrip("\n").encode(errors="surrogateescape") + b"\n").hexdigest()


def _shared(job: ResolvedJob) -> list[str]:
    """The flags that all tasks of an array have: their machines, their time, and where they start."""
    return [flag for flag in directives(job) if not OWN.match(flag)]


def divided(jobs: Sequence[ResolvedJob], most_tasks: int) -> Iterator[tuple[ResolvedJob, ...]]:
    """The jobs of each array: with the same flags, and at most so many; in order of the first of each."""
    alike: dict[tuple[str, ...], list[ResolvedJob]] = {}
    for job in jobs:
        alike.setdefault(tuple(_shared(job)), []).append(job)
    for group in alike.values():
        for start in range(0, len(group), most_tasks):
            yield tuple(group[start : start + most_tasks])
