"""The dependencies of the commands, for tests to replace: AWS, a clock, a way to talk to the user."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from launch.aws.client import Aws
from launch.aws.pricelist import cache_of, no_cache
from launch.core.clock import Clock
from launch.core.terminal import Say, confirm, may_detach, say


@dataclass(frozen=True)
class Runtime:
    """may_detach: asks a user who pressed Ctrl-C; results: the folder that results are fetched into.

    prices_file: where this machine keeps the prices of a region; confirm: asks before something is stopped.
    """

    aws: Aws
    clock: Clock
    say: Say
    may_detach: Callable[[], bool]
    results: Path
    prices_file: Callable[[str], Path | None] = no_cache
    confirm: Callable[[str], None] = confirm


# From a region, or None for the configured one.
RuntimeOf = Callable[[str | None], Runtime]


def terminal(region: str | None) -> Runtime:
    """The runtime of the command line."""
    return Runtime(Aws(region), Clock(), say, may_detach, Path("runs"), partial(cache_of, os.environ))


def notebook(region: str | None) -> Runtime:
    """The runtime of a notebook: interrupting a cell stops following the job, not the job."""
    return Runtime(Aws(region), Clock(), say, lambda: True, Path("runs"), partial(cache_of, os.environ))
