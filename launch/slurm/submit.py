"""Carries a plan out: writes the job folder and submits the script, once per name."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.slurm.ended import conclude, outcome_of
from launch.slurm.folder import read_folder
from launch.slurm.follow import FileTail, follow
from launch.slurm.listing import parse_job_id
from launch.slurm.lookup import Slurm, environment
from launch.slurm.names import ARCHIVE, LOG, command, next_commands
from launch.slurm.note import details, note
from launch.slurm.planner import SlurmPlan
from launch.slurm.runtime import Runtime
from launch.slurm.script import directives
from trainer.errors import SettingsError
from trainer.files import open_lock, write_atomically
from trainer.outcome import Outcome

LOCK = ".submit.lock"


def launch(plan: SlurmPlan, runtime: Runtime) -> Outcome | None:
    """Submits the job unless it is in the queue or done already.  Returns its outcome, or None if it is not followed.

    Raises TrainerError; Ended for a job that failed or was stopped.
    """
    submission, say = plan.payload, runtime.say
    job, queued = submission.job, submission.queued
    slurm = Slurm(environment(runtime.env, directives(job)))
    if submission.is_done and not queued:
        say(f"job {job.name} is done; results: {job.folder}.  To train again, give another --job-name.")
        return outcome_of(job.name, read_folder(job.folder), slurm)
    log = job.folder / LOG
    earlier_output = log.stat().st_size if log.exists() else 0
    if queued:
        say(f"job {job.name} is in the queue already, as {queued.id}")
    else:
        for warning in plan.warnings:
            say(f"warning: {warning}")
        say(f"job {job.name} is submitted as {_submit(plan, slurm)}; it writes to {job.folder}")
    if job.options.wait:
        outcome = follow(job.name, job.folder, FileTail(log, earlier_output), slurm, runtime)
        return conclude(outcome, job.folder, say)
    say("next:")
    for line in (command("status", job.name), *next_commands(job.name, is_over=False)):
        say(f"  {line}")
    return None


def _submit(plan: SlurmPlan, slurm: Slurm) -> str:
    """Writes the folder, submits the script, and returns Slurm's id."""
    job, earlier_ids = plan.payload.job, plan.payload.ids
    with _alone_in(job.folder):
        if newer := read_folder(job.folder).ids[len(earlier_ids) :]:
            raise SettingsError(
                f"job {job.name} has just been submitted by another command, as {newer[-1]}; see "
                f"{command('status', job.name)}, or choose another --job-name."
            )
        write_files(plan)
        # Before as well: where a site rewrites comments, it alone says in the queue whose job this is.
        note(job.folder, job.name, earlier_ids, **details(job))
        job_id = parse_job_id(slurm.run(*plan.command, options=job.options))
        note(job.folder, job.name, [*earlier_ids, job_id], **details(job))
    return job_id


# File systems without flock, such as Lustre mounted without it.
WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Inside the block no other command submits the job in this folder, which is made; waits for one that does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.fdopen(open_lock(folder / LOCK), "r+b")
    except OSError as error:
        raise _unwritable(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released with the process, however it ends
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise _unwritable(folder, error) from error
        yield


def write_files(plan: SlurmPlan) -> None:
    """Writes the job's folder.  Raises SettingsError where that cannot be."""
    folder, source = plan.payload.job.folder, plan.payload.job.train.source
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if source is not None:
            write_atomically(folder / ARCHIVE, source.archive.content)
        for name, text in plan.files:
            write_atomically(folder / name, text)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> SettingsError:
    return SettingsError(
        f"{folder} cannot be written ({error.strerror}); start from a folder on a file system that the nodes share and "
        "you may write to, or give --run-dir."
    )
