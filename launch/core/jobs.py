"""The verbs' texts and options, and the jobs of a backend as the verbs see them.  job_verbs.py has what verbs do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import Field

from launch.core.options import Options
from launch.core.price import usd
from launch.core.terminal import Say, columns, table

if TYPE_CHECKING:
    from trainer.outcome import Outcome


class JobOptions(Options):
    """Options of a verb about one job."""

    job: str | None = Field(None, description="name of the job; may be given first, without the flag")


class Formatted(Options):
    """Options of a verb whose output programs may read."""

    format: Literal["text", "json"] = Field("text", description="output format; --json is short for --format json")


class StatusOptions(JobOptions, Formatted):
    pass


class LogsOptions(JobOptions, Formatted):
    follow: bool = Field(False, description="-f: keep printing until the job has ended")
    node: int | None = Field(None, ge=0, description="only the node with this rank")
    since: float | None = Field(None, gt=0, description="only the last N minutes")


class FetchOptions(JobOptions, Formatted):
    all: bool = Field(False, description="also large checkpoints")


class StopOptions(JobOptions):
    all: bool = Field(False, description="every job")
    yes: bool = Field(False, description="skip the confirmation of --all")


class LeaksOptions(Formatted):
    all_regions: bool = Field(False, description="check every region that is enabled for the account")
    delete: bool = Field(False, description="remove the leaks, after confirmation")
    yes: bool = Field(False, description="skip the confirmation of --delete")
    running: bool = Field(False, description="with --delete: also remove jobs within their time limit")


class SshOptions(JobOptions):
    node: int = Field(0, ge=0, description="rank of the node")
    print: bool = Field(False, description="print the command in place of running it")


class ForwardOptions(SshOptions):
    port: int | None = Field(None, ge=1, le=65535, description="port on the node; may be given after the job")
    local_port: int | None = Field(None, ge=1, le=65535, description="port on this machine (default: the same)")


class TensorboardOptions(JobOptions):
    port: int = Field(6006, ge=1, le=65535, description="port on this machine; may be given after the job")


class AttachOptions(JobOptions):
    fetch: bool = Field(True, description="fetch the results into runs/ at the end")


# Verb -> its text for --help, where {command} is `python -m launch.BACKEND`, and its options.
VERBS: Mapping[str, tuple[str, type[Options]]] = {
    "status": (
        """\
show all jobs, or one: machines, cost, time left, progress, next commands

  {command} status
  {command} status JOB
""",
        StatusOptions,
    ),
    "logs": (
        """\
print the log of a training, also after its end

  {command} logs JOB --follow

Ctrl-C ends this command, not the job.
""",
        LogsOptions,
    ),
    "fetch": (
        """\
fetch the results of a job into runs/JOB: metrics, weights, and what a script wrote; also while it runs

  {command} fetch JOB
  {command} fetch JOB --all

Checkpoints of more than 100 MB stay where they are, unless --all is given.  Files that are here already are skipped.
""",
        FetchOptions,
    ),
    "stop": (
        """\
stop a job, and wait until nothing of it is left that costs money

  {command} stop JOB
  {command} stop --all --yes

Logs, checkpoints and results are kept.  Stopping a job twice is safe.
""",
        StopOptions,
    ),
    "leaks": (
        """\
list what all jobs cost now, and which of it is a leak

  {command} leaks --all-regions
  {command} leaks --delete

--delete asks first; --yes skips the question.  What has a job's tag and not all of the toolkit's is listed, and never
touched.  Exit code 0: no leak is left; 4: one is, or AWS did not answer.  Suitable for cron.
""",
        LeaksOptions,
    ),
    "ssh": (
        """\
open a shell on a machine of a job, without keys or open ports

  {command} ssh JOB --node 1
  {command} ssh JOB --print
""",
        SshOptions,
    ),
    "forward": (
        """\
make a port of a machine of a job reachable at the same port of localhost, until Ctrl-C

  {command} forward JOB 8888
  {command} forward JOB 8888 --local-port 9999 --node 1
""",
        ForwardOptions,
    ),
    "tensorboard": (
        """\
show a job in TensorBoard: fetches its events, again every 30 s, until Ctrl-C

  {command} tensorboard JOB
""",
        TensorboardOptions,
    ),
    "attach": (
        """\
follow a job to its end, as its launcher would

  {command} attach JOB
""",
        JobOptions,
    ),
}


Status = Literal["waiting", "running", "stopping", "done", "failed", "interrupted", "stopped"]


@dataclass(frozen=True)
class Summary:
    """One job for programs, as `status --json` prints it; see infra/README.md.  Times are in UTC."""

    job: str
    status: Status
    region: str | None = None  # on AWS
    nodes: int = 0  # machines that it has now
    started: datetime | None = None
    ended: datetime | None = None
    deadline: datetime | None = None  # when its time limit ends it
    usd_per_hour: float | None = None  # now; None where nothing is billed
    usd: float | None = None  # so far, or in all
    folder: str | None = None  # holds its logs, checkpoints and results
    exit_code: int | None = None  # once it has ended
    reason: str = ""  # why it ended before it was done
    metrics: Mapping[str, float] | None = None  # the newest values; None in a list of jobs
    next: Sequence[str] = ()  # commands that may follow

    def ended_with(self, outcome: Outcome) -> Summary:
        """The summary of the job after its end."""
        return replace(self, status=outcome.state, exit_code=outcome.exit_code, reason=outcome.reason)


@dataclass(frozen=True)
class Overview:
    """Several jobs: as text, and for programs."""

    text: str
    jobs: Sequence[Summary]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Phase:
    """A part of a job's life.  Times are in UTC."""

    name: str
    began: datetime
    ended: datetime | None = None  # None: it goes on


def phases_of(starts: Iterable[tuple[str, datetime | None]], ended: datetime | None) -> tuple[Phase, ...]:
    """The phases with these names and starts, in order: each lasts until the next one begins, the last until `ended`.

    Those without a start are left out, and those that begin after the next one: clocks may differ.
    """
    found = list[Phase]()
    for name, began in reversed([*starts]):
        until = found[-1].began if found else ended
        if began is not None and (until is None or began <= until):
            found.append(Phase(name, began, until))
    return tuple(reversed(found))


@dataclass(frozen=True)
class State:
    """One job, as `status` shows it."""

    summary: Summary

    headline: str
    facts: Sequence[tuple[str, str]]  # a word, and a sentence about it
    tables: Sequence[str] = ()  # between headline and facts
    notes: Sequence[str] = ()
    phases: Sequence[Phase] = ()  # empty if they are not known

    def __str__(self) -> str:
        lines = [self.headline, *(line for text in self.tables for line in ("", *text.splitlines()))]
        lines += ["", *columns(self.facts), "", "next:", *(f"  {command}" for command in self.summary.next)]
        return "\n".join([*lines, *self.notes])


@dataclass(frozen=True)
class Line:
    """A line of a job's log."""

    text: str
    node: int | None = None  # the number of the machine; None: not known
    time: datetime | None = None
    mark: str = ""  # of the machine, where several may log

    def __str__(self) -> str:
        return f"[{self.mark}] {self.text}" if self.mark else self.text


Show = Callable[[Line], object]


@dataclass(frozen=True)
class Log:
    """A job's log.  All functions may raise TrainerError."""

    is_running: bool
    show: Callable[[Show], int]  # shows what there is; returns the number of lines
    follow: Callable[[Show], str]  # shows lines until the job has ended; returns a sentence on its end
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
    ids: Sequence[str] = ()  # AWS's, of its resources
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

    def overview(self, options: Any) -> Iterable[Overview]: ...  # for each region
    def state(self, options: Any) -> State | Overview: ...  # Overview: of several that were submitted as one
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
