"""Submitted jobs for the verbs: found by their comment in the queue, or by their folder."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from launch.aws.progress import newest_of, pace_in_words
from launch.aws.retry import retrying
from launch.core.errors import LeftRunning
from launch.core.jobs import Choice, Leak, Line, Log, Overview, Results, Show, State
from launch.core.runs import read_epochs
from launch.core.terminal import Say, confirm
from launch.slurm import status
from launch.slurm.folder import JobFolder, find_named, name_in, pace_of, read_folder
from launch.slurm.follow import FileTail, follow
from launch.slurm.follow import follow_to_end as follow_job
from launch.slurm.lookup import Slurm, environment
from launch.slurm.names import LOG, STOP, command, folder_of
from launch.slurm.status import conclude, in_words, outcome_of
from trainer.contract import SETTINGS, Exit
from trainer.errors import MachineError, SettingsError
from trainer.files import is_file, write_atomically
from trainer.outcome import Outcome
from trainer.settings.yaml_file import read_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from launch.core.clock import Clock
    from launch.core.jobs import FetchOptions, JobOptions, StopOptions
    from launch.slurm.listing import QueuedJob
    from launch.slurm.options import AttachOptions, QueueLogsOptions
    from launch.slurm.runtime import Runtime
    from trainer.errors import TrainerError

# Time for a job to save; scancel alone would leave it KillWait, 30 s at most sites.
SAVE_S = 120.0
STOP_S, LOOK_EVERY_S = 300.0, 1.0


@dataclass(frozen=True)
class SlurmJob:
    """A job of the user."""

    name: str
    queued: QueuedJob | None  # None if it is over
    folder: JobFolder


@dataclass(frozen=True)
class SlurmJobs:
    """The user's jobs in the queue or with a folder; see launch.core.jobs.Jobs."""

    runtime: Runtime
    leak_columns = ("job", "id", "state")

    @property
    def say(self) -> Say:
        return self.runtime.say

    @property
    def clock(self) -> Clock:
        return self.runtime.clock

    @property
    def confirm(self) -> Callable[[str], None]:
        return confirm

    @property
    def _slurm(self) -> Slurm:
        return Slurm(environment(self.runtime.env))

    def overview(self, options: JobOptions) -> list[Overview]:
        return [status.overview(self._slurm.queue())]

    def state(self, options: JobOptions) -> State | Overview:
        if tasks := self._tasks(options.job or ""):
            return status.overview(tasks)
        job = self._find(options.job or "")
        ended = None if job.queued else self._outcome(job)
        path = job.folder.path
        record = newest_of(read_epochs(path))
        now = self.clock.utc()
        progress = _progress(path, now if job.queued and not job.queued.is_waiting else None)
        state = status.job_state(job.name, job.queued, job.folder, ended, record, _epochs(path), progress)
        return replace(state, phases=status.phases(job.queued, job.folder, now))

    def log(self, options: QueueLogsOptions) -> Log:
        job = self._find(options.job or self._only_job("logs"))
        tail = FileTail(job.folder.path / LOG)

        def show_all(show: Show) -> int:
            lines = tail.new_lines(to_end=not options.follow)
            for line in lines:
                show(Line(line))
            return len(lines)

        def follow_to_end(show: Show) -> str:
            def say(text: str) -> None:
                show(Line(text))

            ended = follow_job(job.name, job.folder.path, tail, self._slurm, replace(self.runtime, say=say))
            return f"job {job.name} ended: {in_words(ended, job.folder.path)}"

        return Log(
            is_running=job.queued is not None,
            show=show_all,
            follow=follow_to_end,
            nothing=lambda: f"the log of {job.name} is empty so far",
            stop=command("stop", job.name),
        )

    def fetch(self, options: FetchOptions, choice: Choice) -> Results:
        """The job's folder, which this machine shares with the nodes."""
        return Results(self._find(options.job or self._only_job("fetch")).folder.path)

    def attach(self, options: AttachOptions) -> Outcome:
        try:
            path, ended = self._followed(options)
        except (LeftRunning, MachineError) as error:
            if options.outcome:  # otherwise a sweep would count the run as failed
                _unknown(error, options.job).write(options.outcome)
            raise
        if options.outcome:
            ended.write(options.outcome)
        return conclude(ended, path, self.say)

    def stop(self, options: StopOptions) -> None:
        if options.job and (tasks := self._tasks(options.job)):
            stop(tasks, self._slurm, self.runtime)
            self.say(f"all of {options.job} are stopped; the same command resumes them")
            return
        job = self._find(options.job or self._only_job("stop"))
        if job.queued is None:
            self.say(f"job {job.name} is not in the queue; nothing to stop")
            return
        stop([job.queued], self._slurm, self.runtime)
        self.say(f"job {job.name} is stopped; submit it with the same command and --job-name {job.name} to resume")

    def active(self, options: StopOptions) -> tuple[Sequence[Leak], bool]:
        return [self._active(job) for job in self._slurm.queue()], True

    def _active(self, job: QueuedJob) -> Leak:
        row = (job.name, job.id, job.state.lower())
        return Leak(job.name, "", False, "in the queue", 0.0, (row,), resources=job)

    def remove(self, leaks: Sequence[Leak]) -> Sequence[str]:
        stop([leak.resources for leak in leaks], self._slurm, self.runtime)
        self.say("all of them are stopped; the same commands with --job-name resume them")
        return ()

    def _followed(self, options: AttachOptions) -> tuple[Path, Outcome]:
        """A job's folder and its outcome."""
        job = retrying(partial(self._to_attach_to, options), self.runtime.clock, self.runtime.say, _is_unreachable)
        path = job.folder.path
        tail = FileTail(path / LOG, job.folder.log_start)
        return path, self._follow(job, tail) if job.queued else self._outcome(job)

    def _to_attach_to(self, options: AttachOptions) -> SlurmJob:
        return self._find(options.job or self._only_job("attach"))

    def _tasks(self, name: str) -> list[QueuedJob]:
        """The queued jobs that were submitted as one batch or one array."""
        return [job for job in self._slurm.queue() if job.array and name in (job.array[0], str(job.number[0]))]

    def _follow(self, job: SlurmJob, tail: FileTail) -> Outcome:
        return follow(job.name, job.folder.path, tail, self._slurm, self.runtime)

    def _outcome(self, job: SlurmJob) -> Outcome:
        return outcome_of(job.name, job.folder, self._slurm)

    def _find(self, job: str) -> SlurmJob:
        """Find a job by name, Slurm id or folder.  Raises SettingsError if there is none of this user."""
        cwd = self.runtime.cwd
        for queued in self._slurm.queue():
            if job in (queued.id, queued.name) or cwd / job == queued.folder:
                return SlurmJob(queued.name, queued, read_folder(queued.folder))
        for path in (folder_of(job, cwd), cwd / job, find_named(job, cwd)):
            folder = read_folder(path) if path and path.is_dir() else None
            if folder and folder.is_job:
                return SlurmJob(name_in(folder.path) or folder.path.name, None, folder)
        raise _not_found(job, cwd)

    def _only_job(self, verb: str) -> str:
        """The job to use if none is named.  Raises SettingsError unless exactly one is in the queue."""
        jobs = self._slurm.queue()
        if len(jobs) == 1:
            return jobs[0].name
        names = ", ".join(job.name for job in jobs)
        hint = f"in the queue: {names}" if names else "none is in the queue"
        raise SettingsError(f"name the job: {command(verb, 'JOB')} ({hint}).")


def _not_found(job: str, cwd: Path) -> SettingsError:
    if job.isdigit():
        return SettingsError(
            f"job {job} is not one of this toolkit's jobs in your queue; if it is yours, `scancel {job}` ends it. "
            "A job that has ended is found by its name."
        )
    return SettingsError(
        f"there is no job {job} in the queue, and no folder {folder_of(job, cwd)}; python -m launch.slurm status lists "
        "your jobs."
    )


def _is_unreachable(error: TrainerError) -> bool:
    """Whether Slurm's controller was busy, as when all runs of a sweep are attached to at once."""
    return isinstance(error, MachineError)


def _unknown(error: LeftRunning | MachineError, job: str | None) -> Outcome:
    """The outcome if the launcher ends without knowing the job's state.  job: as given on the command line."""
    if isinstance(error, LeftRunning) and error.outcome:
        return error.outcome
    stop_it = command("stop", shlex.quote(job) if job else "JOB")
    words = f"{error}  The job may go on without its launcher; to stop it: {stop_it}"
    return Outcome("interrupted", Exit.MACHINE, words)


def stop(jobs: Sequence[QueuedJob], slurm: Slurm, runtime: Runtime) -> None:
    """Ask jobs to save and end, and cancel those that do not.  Returns when all have left the queue."""
    # Waiting jobs first: in an array, one begins when another ends.
    _cancel([job.id for job in jobs if job.is_waiting], slurm)
    asked = [job for job in jobs if not job.is_waiting and _ask_to_save(job, slurm)]
    for job in asked:
        runtime.say(f"asked job {job.name} to save and end")
    now = runtime.clock.now()
    _wait(jobs, {job.id: now + SAVE_S * (job in asked) for job in jobs}, slurm, runtime.clock)


def _wait(jobs: Sequence[QueuedJob], cancel_at: dict[str, float], slurm: Slurm, clock: Clock) -> None:
    """Wait until all jobs have left the queue.  cancel_at: when to cancel each, by id."""
    give_up_at = clock.now() + STOP_S
    while remaining := _in_queue(jobs, slurm):
        late = [job.id for job in remaining if job.is_waiting or clock.now() >= cancel_at[job.id]]
        _cancel(late, slurm)
        cancel_at |= dict.fromkeys(late, give_up_at)
        if clock.now() > give_up_at:
            raise _still_there(remaining[0])
        clock.sleep(LOOK_EVERY_S)


def _cancel(ids: Sequence[str], slurm: Slurm) -> None:
    if ids:
        slurm.run("scancel", *ids)


def _still_there(job: QueuedJob) -> MachineError:
    return MachineError(
        f"job {job.id} has not ended after {STOP_S / 60:g} minutes; look at it with {command('status', job.name)}"
    )


def _in_queue(jobs: Sequence[QueuedJob], slurm: Slurm) -> list[QueuedJob]:
    ids = {job.id for job in jobs}
    return [job for job in slurm.queue() if job.id in ids]


def _ask_to_save(job: QueuedJob, slurm: Slurm) -> bool:
    """Send the signal that Slurm sends before the time limit, and prevent requeueing.

    Returns False if the job cannot be asked.
    """
    try:
        write_atomically(job.folder / STOP, job.id)
        slurm.run("scancel", "--batch", "--signal=USR1", job.id)
    except (OSError, SettingsError):  # the folder is not writable, or the job is just ending
        return False
    return True


def _progress(folder: Path, now: datetime | None) -> str:
    """The progress of a script, if its metrics have it.  now: None for a job that does not run."""
    pace = pace_of(folder)
    return pace_in_words(pace, now.timestamp() if now else None) if pace else ""


def _epochs(folder: Path) -> str:
    """The number of epochs in the run's own settings, or '?'."""
    try:
        return str(read_mapping(folder / SETTINGS)["epochs"]) if is_file(folder / SETTINGS) else "?"
    except (SettingsError, KeyError):
        return "?"
