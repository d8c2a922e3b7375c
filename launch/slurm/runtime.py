"""The dependencies of launch.slurm's commands, for tests to replace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.core.terminal import Say


@dataclass(frozen=True)
class Runtime:
    """env: the user's, which jobs inherit; cwd: absolute; python: runs the ranks, unless a container does.

    make_aws: calls to a region, None for the configured one; only for a look at what --data-url names.
    """

    env: Mapping[str, str]
    cwd: Path
    python: str
    clock: Clock
    say: Say
    make_aws: Callable[[str | None], Aws] = Aws
