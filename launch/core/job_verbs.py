"""The verbs for jobs that were started, once for every backend: status, logs, fetch, stop, ...

A backend finds its jobs and acts on them, as Jobs.  What is asked and printed, confirmation, Ctrl-C and exit codes are
here.  To add a verb: its text and options in VERBS, and a method of Commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from shutil import which
from typing import Any, cast

from pydantic import Field, create_model

from launch.core.jobs import (
    NO_LEAKS,
    CloudJobs,
    Connection,
    Jobs,
    Leak,
    event_files,
    everything,
    leaks_as_table,
    leaks_as_text,
    without_checkpoints,
)
from launch.core.options import Options
from launch.core.verbs import Verb
from trainer.contract import STOPPED, Exit
from trainer.errors import SettingsError, TrainerError
from trainer.files import below
from trainer.settings.argparser import flag


class JobOptions(Options):
    """Options of a verb about one job."""

    job: str | None = Field(None, description="name of the job; may be given first, without the flag")


class LogsOptions(JobOptions):
    follow: bool = Field(False, description="-f: keep printing until the job has ended")
    node: int | None = Field(None, ge=0, description="only the node with this rank")
    since: float | None = Field(None, gt=0, description="only the last N minutes")


class FetchOptions(JobOptions):
    all: bool = Field(False, description="also large checkpoints")


class StopOptions(JobOptions):
    all: bool = Field(False, description="every job")
    yes: bool = Field(False, description="skip the confirmation of --all")


class LeaksOptions(Options):
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
        JobOptions,
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


def job_verbs(
    command: str,
    jobs: Callable[[Any], Jobs],
    where: type[Options] = Options,
    options: Mapping[str, type[Options]] | None = None,
    notes: Mapping[str, str] | None = None,
    lacks: Collection[str] = (),
) -> dict[str, Verb]:
    """The verbs of a backend.

    command: `python -m launch.BACKEND`; jobs: called with its options when a verb runs, so that it may import what
    --help does not need;
    where: options of all its verbs, such as region; options: of single verbs, in place of those in VERBS; notes: a
    paragraph that a verb's text has on this backend alone.
    """

    def act(name: str, options: Any) -> int:
        code: int = getattr(Commands(command, jobs(options)), name)(options)
        return code

    def verb(name: str) -> Verb:
        text, usual = VERBS[name]
        model = create_model(f"{name.title()}Options", __base__=((options or {}).get(name, usual), where))
        about = "\n".join([text, *([notes[name]] if notes and name in notes else [])])
        return Verb(about.format(command=command), model, partial(act, name))

    return {name: verb(name) for name in VERBS if name not in lacks}


REFRESH_S = 30.0  # as often as TensorBoard reads its events again


@dataclass(frozen=True)
class Commands:
    """One method per verb; each returns its exit code and may raise TrainerError."""

    command: str
    jobs: Jobs = field(repr=False)

    @property
    def _cloud(self) -> CloudJobs:
        """For the verbs that other backends lack."""
        return cast(CloudJobs, self.jobs)

    def status(self, options: Any) -> int:
        for text in self.jobs.overview(options) if options.job is None else [str(self.jobs.state(options))]:
            self.jobs.say(text)
        return Exit.DONE

    def logs(self, options: Any) -> int:
        say, log = self.jobs.say, self.jobs.log(options)
        if not log.show(say):
            say(log.nothing())
        if not (options.follow and log.is_running):
            return Exit.DONE
        try:
            ended = log.follow()
        except KeyboardInterrupt:
            say(f"the job keeps running; to stop it:\n  {log.stop}")
            return STOPPED
        say(ended)
        return Exit.DONE

    def fetch(self, options: Any) -> int:
        results = self.jobs.fetch(options, everything if options.all else without_checkpoints)
        self.jobs.say(str(results) if results.folder.is_dir() else "there are no results yet")
        return Exit.DONE

    def stop(self, options: Any) -> int:
        if options.all:
            return self._stop_all(options)
        self.jobs.stop(options)
        return Exit.DONE

    def _stop_all(self, options: Any) -> int:
        if options.job is not None:
            raise SettingsError(f"use either --all or {options.job}, not both.")
        found, is_complete = self.jobs.active(options)
        chosen = [leak for leak in found if leak.is_removable]
        if not chosen and is_complete:
            self.jobs.say("no job is running")
        elif chosen and not options.yes:
            self.jobs.say(leaks_as_table(self.jobs.leak_columns, chosen))
            raise SettingsError(f"--all stops {_names(chosen)}; add --yes to confirm.")
        return max(self._remove(chosen), Exit.DONE if is_complete else Exit.AWS)

    def leaks(self, options: Any) -> int:
        if options.running and not options.delete:
            raise SettingsError("--running needs --delete; all jobs are listed anyway.")
        found, is_complete = self._cloud.leaks(options)
        if options.delete and self._deleted(options, found):
            found, is_complete = self._cloud.leaks(options)
        return self._report(options, found, is_complete)

    def _report(self, options: Any, found: Sequence[Leak], is_complete: bool) -> int:
        """Prints what was found; returns the exit code of `leaks`."""
        self._show(found, NO_LEAKS if is_complete else "")
        leaks = [leak for leak in found if leak.is_leak]
        if any(leak.is_removable for leak in leaks):
            self.jobs.say(f"to remove the leaks:\n  {self.command} leaks --delete{_where(options)}")
        return Exit.DONE if is_complete and not leaks else Exit.AWS

    def _deleted(self, options: Any, found: Sequence[Leak]) -> bool:
        """Removes the leaks, and asks first; returns whether there were any.  Raises SettingsError
        if the user declines.
        """
        chosen = [leak for leak in found if leak.is_removable and (leak.is_leak or options.running)]
        if chosen and not options.yes:
            self._show(found, "")
            self.jobs.confirm(f"--delete removes {_names(chosen)}")
        self._remove(chosen)
        return bool(chosen)

    def _show(self, found: Sequence[Leak], nothing: str) -> None:
        if text := leaks_as_text(self.jobs.leak_columns, found) if found else nothing:
            self.jobs.say(text)

    def ssh(self, options: Any) -> int:
        return self._connect(self._cloud.shell(options), options)

    def forward(self, options: Any) -> int:
        if options.port is None:
            raise SettingsError(f"give the port, too: {self.command} forward JOB PORT")
        return self._connect(self._cloud.forward(options), options)

    def _connect(self, connection: Connection, options: Any) -> int:
        if options.print:
            self.jobs.say(str(connection))
            return Exit.DONE
        missing = [how for program, how in connection.programs.items() if which(program) is None]
        if missing:
            raise SettingsError("\n".join([*missing, "or print the command, to run it elsewhere: add --print"]))
        from launch.core.shell import become

        self.jobs.say(shlex.join(connection.command))
        return become(connection.command)

    def tensorboard(self, options: Any) -> int:
        folder = self.jobs.fetch(options, event_files).folder
        if not (folder.is_dir() and event_files({str(path): 0 for path in below(folder)})):
            raise SettingsError(f"{folder} has no events of TensorBoard; train with --tensorboard.")
        if find_spec("tensorboard") is None:
            raise SettingsError(
                f"TensorBoard is not installed; its events are in {folder}:\n  pip install tensorboard\n"
                f"  tensorboard --logdir {shlex.quote(str(folder))}"
            )
        from launch.core.shell import run_beside, this_python

        self.jobs.say(f"http://localhost:{options.port}, until Ctrl-C")
        words = ("-m", "tensorboard.main", "--logdir", str(folder), "--port", str(options.port))
        return run_beside([*this_python(), *words], REFRESH_S, partial(self._refresh, options))

    def _refresh(self, options: Any) -> None:
        try:
            self.jobs.fetch(options, event_files)
        except TrainerError as error:
            self.jobs.say(f"warning: {error}")

    def attach(self, options: Any) -> int:
        outcome = self.jobs.attach(options)
        return Exit.DONE if outcome is None else outcome.exit_code

    def _remove(self, leaks: Sequence[Leak]) -> int:
        """Removes what costs most first."""
        failures = self.jobs.remove(sorted(leaks, key=lambda leak: -leak.usd_per_hour)) if leaks else ()
        for sentence in failures:
            self.jobs.say(f"error: {sentence}")
        return Exit.AWS if failures else Exit.DONE


def _names(leaks: Sequence[Leak]) -> str:
    return ", ".join(dict.fromkeys(leak.job for leak in leaks))


def _where(options: Any) -> str:
    """The flags that say where a verb looked."""
    if options.all_regions:
        return " --all-regions"
    region = getattr(options, "region", None)
    if not region:
        return ""
    return f" {flag('region')} {region if isinstance(region, str) else ','.join(region)}"
