"""Jobs that a backend can submit together: what it is given.  Backend.together names the function that does it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.core.job import Job


@dataclass(frozen=True)
class Member:
    """One of the jobs.  folder: of its run, relative to the current folder or absolute.

    is_unseen: nobody has noted how it ended, if it was submitted before and has ended since.
    """

    name: str
    folder: Path
    job: Job[Any]
    is_unseen: bool


@dataclass(frozen=True)
class Together:
    """name: of all of them; folder: for what they share; at_once: how many may run at a time; env: of the user."""

    name: str
    folder: Path
    at_once: int
    env: Mapping[str, str]
    say: Callable[[str], None]


# Returns the names of the jobs to attach to, in the order of their starts; the others are to be launched one by one.
Submit = Callable[[Sequence[Member], Together], list[str]]
