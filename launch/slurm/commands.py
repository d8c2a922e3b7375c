"""What each verb does, from its options to what is shown.  Jobs are found by their comment, or by their folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.core.errors import Ended
from launch.core.runs import read_epochs
from launch.slurm import status as state
from launch.slurm.ended import Over, by_itself, by_slurm
from launch.slurm.follow import Follower, Tail
from launch.slurm.listing import Queued
from launch.slurm.lookup import Folder, Slurm, environment, name_in, named, read_folder
from launch.slurm.names import LOG, STOP, command, folder_of
from launch.slurm.submit import World
from trainer.contract import SETTINGS, Exit
from trainer.errors import MachineError, SettingsError

if TYPE_CHECKING:
    from launch.slurm.verbs import LogsOptions, OfJob

# How long a job may take to save; scancel alone would give it KillWait, 30 s at most sites.
SAVE_S = 120.0
STOP_S, LOOK_EVERY_S = 300.0, 1.0


@dataclass(frozen=True)
class Found:
    """A job.  queued: None if it is over."""

    name: str
    queued: Queued | None
    folder: Folder


@dataclass(frozen=True)
class Acts:
    """One method per verb; each returns its exit code and may raise TrainerError."""

    world: World
    cwd: Path

    @property
    def _slurm(self) -> Slurm:
        return Slurm(environment(self.world.env))

    def status(self, options: OfJob) -> int:
        if options.job is None:
            self.world.say(state.all_as_text(self._slurm.queue()))
            return Exit.DONE
        found = self._find(options.job)
        over = None if found.queued else self._over(found)
        records = read_epochs(found.folder.path)
        record = records[-1] if records else None
        self.world.say(state.as_text(found.name, found.queued, found.folder, over, record, _epochs(found.folder.path)))
        return Exit.DONE

    def logs(self, options: LogsOptions) -> int:
        found = self._find(options.job or self._only("logs"))
        tail = Tail(found.folder.path / LOG)
        lines = tail.new_lines(to_end=not options.follow)
        for line in lines or [f"{found.name} has said nothing yet"]:
            self.world.say(line)
        if options.follow and found.queued:
            over = self._follow(found, tail)
            self.world.say(f"job {found.name} is over: {over.sentence}")
        return Exit.DONE

    def attach(self, options: OfJob) -> int:
        found = self._find(options.job or self._only("attach"))
        over = self._follow(found, Tail(found.folder.path / LOG)) if found.queued else self._over(found)
        if over.code != Exit.DONE:
            raise Ended(over.sentence, over.code)
        self.world.say(f"job {found.name}: {over.sentence}")
        return Exit.DONE

    def stop(self, options: OfJob) -> int:
        found = self._find(options.job or self._only("stop"))
        if found.queued is None:
            self.world.say(f"nothing of {found.name} is in the queue")
            return Exit.DONE
        end(found.queued, self._slurm, self.world)
        self.world.say(f"job {found.name} is stopped; submit it with the same command to go on")
        return Exit.DONE

    def _follow(self, found: Found, tail: Tail) -> Over:
        try:
            return Follower(self._slurm, self.world.clock, self.world.say).follow(found.name, found.folder.path, tail)
        except KeyboardInterrupt:
            self.world.say(f"the job goes on; end it with {command('stop', found.name)}")
            raise

    def _over(self, found: Found) -> Over:
        ended, ids = found.folder.ended(), found.folder.ids
        if ended:
            return by_itself(ended, found.folder, found.name)
        return by_slurm(self._slurm.last_state(ids[-1])[0] if ids else "", found.name)

    def _find(self, job: str) -> Found:
        """By name, Slurm's id or folder.  Raises SettingsError where there is none, or it is somebody else's."""
        for queued in self._slurm.queue():
            if job in (queued.id, queued.name) or Path(job).absolute() == queued.folder:
                return Found(queued.name, queued, read_folder(queued.folder))
        for path in (folder_of(job, self.cwd), self.cwd / job, named(job, self.cwd)):
            folder = read_folder(path) if path and path.is_dir() else None
            if folder and folder.is_ours:
                return Found(name_in(folder.path) or folder.path.name, None, folder)
        raise SettingsError(self._not_found(job))

    def _not_found(self, job: str) -> str:
        if job.isdigit():
            return (
                f"job {job} is none of this toolkit's in your queue; if it is yours, `scancel {job}` ends it. "
                "A job that is over is found by its name."
            )
        return (
            f"there is no job {job} in the queue, and no folder {folder_of(job, self.cwd)}; "
            "python -m launch.slurm status lists yours."
        )

    def _only(self, verb: str) -> str:
        """The job that is meant where none is named."""
        jobs = self._slurm.queue()
        if len(jobs) == 1:
            return jobs[0].name
        names = ", ".join(job.name for job in jobs)
        raise SettingsError(f"which job? {command(verb, 'JOB')}" + (f"; in the queue: {names}" if names else ""))


def end(job: Queued, slurm: Slurm, world: World) -> None:
    """Asks the job to save, which then ends itself, and cancels it where it does not.  Returns when it is gone."""
    now = world.clock.now
    asks = not job.is_waiting and _ask_to_save(job, slurm)
    if asks:
        world.say(f"job {job.name} is asked to save and end")
    cancel_at, until = now() + (SAVE_S if asks else 0.0), now() + STOP_S
    while left := next((queued for queued in slurm.queue() if queued.id == job.id), None):
        if now() >= cancel_at or left.is_waiting:
            slurm.tell("scancel", job.id)
            cancel_at = until
        if now() > until:
            raise MachineError(
                f"job {job.id} is still ending after {STOP_S / 60:g} minutes; look with {command('status', job.name)}"
            )
        world.clock.sleep(LOOK_EVERY_S)


def _ask_to_save(job: Queued, slurm: Slurm) -> bool:
    """What Slurm itself does ahead of the time limit, but the job must not start again.  False: it cannot be asked."""
    try:
        (job.folder / STOP).write_text(job.id)
        slurm.tell("scancel", "--batch", "--signal=USR1", job.id)
    except (OSError, SettingsError):  # the folder is not ours, or the job is just ending
        return False
    return True


def _epochs(folder: Path) -> str:
    """How many there shall be, from the run's own settings."""
    import yaml

    try:
        settings: Any = yaml.safe_load((folder / SETTINGS).read_text())
        return str(settings["epochs"])
    except (OSError, TypeError, KeyError, yaml.YAMLError):
        return "?"
