"""The verbs for jobs that were started, once for every backend: status, logs, fetch, stop, ...

A backend finds its jobs and acts on them, as Jobs.  Questions, output, confirmation, Ctrl-C and exit codes are
here.  To add a verb: its text and options in jobs.VERBS, and a method of Commands.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from shutil import which
from typing import Any, cast

from pydantic import create_model
from pydantic_core import to_jsonable_python

from launch.core.jobs import (
    NO_LEAKS,
    VERBS,
    CloudJobs,
    Connection,
    Jobs,
    Leak,
    Line,
    Overview,
    State,
    Summary,
    event_files,
    everything,
    leaks_as_table,
    leaks_as_text,
    without_checkpoints,
)
from launch.core.options import Options
from launch.core.terminal import complain
from launch.core.verbs import Verb
from trainer.contract import STOPPED, Exit
from trainer.errors import SettingsError, TrainerError
from trainer.files import below
from trainer.settings.argparser import flag


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
        if options.format == "json":
            with _warnings_apart(options):
                found = list(self._found(options))
            self.jobs.say(_as_json(_summaries(found)))
            return Exit.DONE
        for one in self._found(options):
            self.jobs.say(str(one))
        return Exit.DONE

    def _found(self, options: Any) -> Iterable[State | Overview]:
        return self.jobs.overview(options) if options.job is None else [self.jobs.state(options)]

    def logs(self, options: Any) -> int:
        show, say = self._show_line, self.jobs.say
        if options.format == "json":
            show, say = self._show_line_as_json, complain
        with _warnings_apart(options):
            log = self.jobs.log(options)
        if not log.show(show):
            say(log.nothing())
        if not (options.follow and log.is_running):
            return Exit.DONE
        try:
            ended = log.follow(show)
        except KeyboardInterrupt:
            say(f"the job keeps running; to stop it:\n  {log.stop}")
            return STOPPED
        say(ended)
        return Exit.DONE

    def _show_line(self, line: Line) -> None:
        self.jobs.say(str(line))

    def _show_line_as_json(self, line: Line) -> None:
        self.jobs.say(_as_json({"text": line.text, "node": line.node, "time": line.time}))

    def fetch(self, options: Any) -> int:
        with _warnings_apart(options):
            results = self.jobs.fetch(options, everything if options.all else without_checkpoints)
        if options.format == "json":
            self.jobs.say(_as_json(results))
        else:
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
        if options.format == "json":
            return self._leaks_as_json(options)
        found, is_complete = self._cloud.leaks(options)
        if options.delete and self._deleted(options, found):
            found, is_complete = self._cloud.leaks(options)
        self._show(found, NO_LEAKS if is_complete else "")
        if any(leak.is_removable for leak in found if leak.is_leak):
            self.jobs.say(f"to remove the leaks:\n  {self.command} leaks --delete{_where(options)}")
        return _code(found, is_complete)

    def _leaks_as_json(self, options: Any) -> int:
        if options.delete:
            raise SettingsError("--json lists leaks, and --delete asks before it removes them; leave one of them out.")
        with _warnings_apart(options):
            found, is_complete = self._cloud.leaks(options)
        rows = [{name: getattr(leak, name) for name in LEAK_FIELDS} for leak in found]
        self.jobs.say(_as_json({"jobs": rows, "is_complete": is_complete}))
        return _code(found, is_complete)

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


LEAK_FIELDS = ("job", "region", "is_leak", "why", "usd_per_hour", "is_removable", "ids")


def _code(found: Sequence[Leak], is_complete: bool) -> int:
    """The exit code of `leaks`."""
    return Exit.DONE if is_complete and not any(leak.is_leak for leak in found) else Exit.AWS


def _warnings_apart(options: Any) -> AbstractContextManager[object]:
    """Inside the block what is printed goes to standard error, if standard output is for JSON."""
    return redirect_stdout(sys.stderr) if options.format == "json" else nullcontext()


def _summaries(found: Sequence[State | Overview]) -> Summary | dict[str, Any]:
    """What `status --json` prints: one job, or a list of several."""
    if len(found) == 1 and isinstance(found[0], State):
        return found[0].summary
    return {"jobs": [job for one in found if isinstance(one, Overview) for job in one.jobs]}


def _as_json(content: object) -> str:
    return json.dumps(content, default=to_jsonable_python)


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
