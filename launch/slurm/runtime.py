"""The commands' dependencies on this machine, for tests to replace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.core.terminal import Say


@dataclass(frozen=True)
class Runtime:
    """The user's environment, time and terminal."""

    env: Mapping[str, str]  # inherited by jobs
    cwd: Path  # absolute
    python: str  # runs the ranks outside containers
    clock: Clock
    say: Say
    make_aws: Callable[[str | None], Aws] = Aws  # by region, None for the configured one; only to read --data-url
