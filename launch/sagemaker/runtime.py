"""What the commands get from outside: AWS, a clock, a way to talk to the user."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from launch.core import cli
from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.perform import Say


@dataclass(frozen=True)
class Runtime:
    """may_detach: asks a user who pressed Ctrl-C; results: the folder that results are fetched into."""

    aws: Aws
    clock: Clock
    say: Say
    may_detach: Callable[[], bool]
    results: Path


# From a region, or None for the configured one.
RuntimeOf = Callable[[str | None], Runtime]


def terminal(region: str | None) -> Runtime:
    """The runtime of the command line."""
    return Runtime(Aws(region), Clock(), cli.say, cli.may_detach, Path("runs"))


def notebook(region: str | None) -> Runtime:
    """The runtime of a notebook: interrupting a cell stops following the job, not the job."""
    return Runtime(Aws(region), Clock(), partial(print, flush=True), lambda: True, Path("runs"))
