"""The commands' dependencies on AWS, time and the terminal, for tests to replace."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from launch.aws.client import Aws
from launch.aws.pricelist import cache_of, no_cache
from launch.core.clock import Clock
from launch.core.terminal import Say, approve, confirm, may_detach, say


@dataclass(frozen=True)
class Runtime:
    """AWS in a region, time and the user."""

    aws: Aws
    clock: Clock = field(default_factory=Clock)
    say: Say = say
    may_detach: Callable[[], bool] = may_detach  # after Ctrl-C: asks whether the job keeps running
    results: Path = Path("runs")  # the folder into which results are fetched
    prices_file: Callable[[str], Path | None] = no_cache  # by region: the cache of its prices
    confirm: Callable[[str], None] = confirm  # asks before jobs are stopped
    approve: Callable[[str], None] = approve  # asks before a job is started


# By region, None for the configured one.
RuntimeOf = Callable[[str | None], Runtime]


def terminal(region: str | None) -> Runtime:
    """The runtime of the command line."""
    return Runtime(Aws(region), prices_file=partial(cache_of, os.environ))


def notebook(region: str | None) -> Runtime:
    """The runtime of a notebook: interrupting a cell leaves the job running."""
    return replace(terminal(region), may_detach=lambda: True)
