"""The jobs of a backend, as the verbs see them: found, looked at, stopped, fetched.  job_verbs.py has the verbs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from launch.core.price import usd
from launch.core.terminal import Say, columns, table

if TYPE_CHECKING:
    from trainer.outcome import Outcome


@dataclass(frozen=True)
class State:
    """One job, as `status` shows it."""

    headline: str
    facts: Sequence[tuple[str, str]]  # a word, and a sentence about it
    next: Sequence[str]  # commands that may follow
    tables: Sequence[str] = ()  # between headline and facts
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [self.headline, *(line for text in self.tables for line in ("", *text.splitlines()))]
        lines += ["", *columns(self.facts), "", "next:", *(f"  {command}" for command in self.next)]
        return "\n".join([*lines, *self.notes])


@dataclass(frozen=True)
class Log:
    """A job's log.  All functions may raise TrainerError."""

    is_running: bool
    show: Callable[[Say], int]  # prints what there is; returns the number of lines
    follow: Callable[[], str]  # prints lines until the job has ended; returns a sentence on its end
    nothing: Callable[[], str]  # why there is no line
    stop: str  # the command that stops the job


# Chooses files of a job by their names and sizes in bytes.
Choice = Callable[[Mapping[str, int]], Collection[str]]
LARGE_BYTES = 100_000_000


def everything(sizes: Mapping[str, int]) -> Collection[str]:
    """All files."""
    return sizes


def without_checkpoints(sizes: Mapping[str, int]) -> Collection[str]:
    """All files but large checkpoints: those in folders with such names, as libraries write them, too."""
    checkpoints = {name for name in sizes if any(part.startswith("checkpoint") for part in name.split("/")[:-1])}
    is_large = sum(sizes[name] for name in checkpoints) > LARGE_BYTES
    return [name for name in sizes if not (is_large and name in checkpoints)]


def event_files(sizes: Mapping[str, int]) -> Collection[str]:
    """TensorBoard's events."""
    return [name for name in sizes if "tfevents" in name.rpartition("/")[2]]


@dataclass(frozen=True)
class Results:
    """The results of a job on this machine."""

    folder: Path
    # Fetched now or before: their paths in the folder, and sizes in bytes; empty if all were written on this machine.
    files: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)  # the same of files that stay where they are
    rest: str = ""  # the command that fetches those, too

    def __str__(self) -> str:
        if not self.left:
            return f"results: {self.folder}"
        count, megabytes = len(self.left), sum(self.left.values()) / 1e6
        what = f"{count} file{'' if count == 1 else 's'} of {megabytes:,.0f} MB"
        return f"results: {self.folder}, without {what}; to fetch these, too:\n  {self.rest}"


@dataclass(frozen=True)
class Connection:
    """A command that connects this terminal with a machine of a job."""

    command: Sequence[str]
    programs: Mapping[str, str]  # that the command needs -> a sentence on how to install each
    notes: Sequence[str] = ()  # on what to do there

    def __str__(self) -> str:
        return "\n".join([shlex.join(self.command), *(f"# {note}" for note in self.notes)])


@dataclass(frozen=True)
class Leak:
    """A job that has something which may cost money; a leak, unless it should have it now."""

    job: str
    region: str
    is_leak: bool
    why: str  # it is a leak, or is not
    usd_per_hour: float
    rows: Sequence[Sequence[str]]  # of the table, under Jobs.leak_columns
    is_removable: bool = True  # all of it has the toolkit's tags, so it may be removed
    resources: Any = None  # for the backend


NO_LEAKS = "no leaks: nothing is running"


def leaks_as_table(columns: Sequence[str], leaks: Sequence[Leak]) -> str:
    """A row per resource."""
    return table(columns, [row for leak in leaks for row in leak.rows])


def leaks_as_text(columns: Sequence[str], leaks: Sequence[Leak]) -> str:
    """A row per resource, and the price of all of them."""
    total = usd(sum(leak.usd_per_hour for leak in leaks))
    leaking = usd(sum(leak.usd_per_hour for leak in leaks if leak.is_leak))
    return f"{leaks_as_table(columns, leaks)}\n\n{total} per hour, {leaking} of it for leaks"


class Jobs(Protocol):
    """The jobs of a backend.  Options are those of the verb, with the backend's own such as region.

    Every method may raise TrainerError.
    """

    @property
    def say(self) -> Say: ...
    @property
    def confirm(self) -> Callable[[str], None]: ...  # raises SettingsError unless the user agrees
    @property
    def leak_columns(self) -> Sequence[str]: ...

    def overview(self, options: Any) -> Iterable[str]: ...  # a table for each region, a row per job
    def state(self, options: Any) -> State | str: ...  # str: of several that were submitted as one
    def log(self, options: Any) -> Log: ...
    def fetch(self, options: Any, choice: Choice) -> Results: ...  # only says where they are if they are here already
    def stop(self, options: Any) -> None: ...  # idempotent and verified; prints what it removed
    def attach(self, options: Any) -> Outcome | None: ...
    def active(self, options: Any) -> tuple[Sequence[Leak], bool]: ...  # what `stop --all` ends; see leaks()
    def remove(self, leaks: Sequence[Leak]) -> Sequence[str]: ...  # returns a sentence for each failure


class CloudJobs(Jobs, Protocol):
    """Jobs on machines that are rented: they can be leaks, and have shells.  Other backends lack those verbs."""

    def leaks(self, options: Any) -> tuple[Sequence[Leak], bool]: ...  # also: whether all regions answered
    def shell(self, options: Any) -> Connection: ...
    def forward(self, options: Any) -> Connection: ...  # to options.port
