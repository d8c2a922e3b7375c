"""The dependencies of launch.slurm's commands, for tests to replace."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.core.clock import Clock
from launch.core.perform import Say


@dataclass(frozen=True)
class Runtime:
    """env: the user's, which jobs inherit; cwd: absolute; python: runs the ranks, unless a container does."""

    env: Mapping[str, str]
    cwd: Path
    python: str
    clock: Clock
    say: Say
