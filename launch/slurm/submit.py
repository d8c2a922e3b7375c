"""Makes a plan and performs it: writes the job folder and submits the script, once per name."""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from launch.aws.lookup import content_at, region_or_some
from launch.core.job import Job, job_name
from launch.core.manifest import MANIFEST, Content, content_in
from launch.core.training.base import Training
from launch.slurm import checks, planner
from launch.slurm.folder import details, earlier_jobs, note, read_folder
from launch.slurm.follow import FileTail, follow
from launch.slurm.listing import parse_job_id
from launch.slurm.lookup import Slurm, environment
from launch.slurm.names import ARCHIVE, LOG, command, folder_of, next_commands
from launch.slurm.options import SlurmOptions
from launch.slurm.planner import Facts, SlurmPlan
from launch.slurm.runtime import Runtime
from launch.slurm.script import directives
from launch.slurm.status import conclude, outcome_of
from trainer.errors import SettingsError, TrainerError
from trainer.files import open_lock, read_json, write_atomically
from trainer.outcome import Outcome

LOCK = ".submit.lock"


def launch(plan: SlurmPlan, runtime: Runtime) -> Outcome | None:
    """Submit the job unless it is already queued or done.  Returns its outcome, or None if it is not followed.

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
    if job.options.wait and not job.options.detach:
        outcome = follow(job.name, job.folder, FileTail(log, earlier_output), slurm, runtime)
        return conclude(outcome, job.folder, say)
    say("next:")
    for line in (command("status", job.name), *next_commands(job.name, is_over=False)):
        say(f"  {line}")
    return None


def _submit(plan: SlurmPlan, slurm: Slurm) -> str:
    """Write the folder, submit the script, and return Slurm's id."""
    job, earlier_ids = plan.payload.job, plan.payload.ids
    with _locked(job.folder):
        if newer := read_folder(job.folder).ids[len(earlier_ids) :]:
            raise SettingsError(
                f"job {job.name} has just been submitted by another command, as {newer[-1]}; see "
                f"{command('status', job.name)}, or choose another --job-name."
            )
        write_files(plan)
        # Record the name before submitting: at sites that rewrite comments it alone identifies the queued job.
        note(job.folder, job.name, earlier_ids, **details(job))
        job_id = parse_job_id(slurm.run(*plan.command, options=job.options))
        note(job.folder, job.name, [*earlier_ids, job_id], **details(job))
    return job_id


# Errors of file systems without flock, such as Lustre mounted without it.
WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Create and lock the folder, so that no other command submits its job meanwhile; wait for one that does."""
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
    """Write the job's folder.  Raises SettingsError if it is not writable."""
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


def plan_for(job: Job[SlurmOptions], runtime: Runtime) -> SlurmPlan:
    """The plan for `job`.  Raises SettingsError for settings that cannot work, before any call to Slurm."""
    options, processes = checks.resolve(job)
    name = _name(job, runtime)
    plan = planner.plan(job, options, processes, name, _facts(job, name, runtime))
    submission = plan.payload
    if plan.problems or submission.queued or submission.is_done:
        return plan
    slurm = Slurm(environment(runtime.env, directives(submission.job)))
    try:
        start = slurm.expected_start(submission.script, options)
    except TrainerError as refusal:
        return planner.with_answer(plan, None, refusal)
    return planner.with_answer(plan, start, None)


def _name(job: Job[SlurmOptions], runtime: Runtime) -> str:
    """The job's name; derived from --run-dir if that is given without a name."""
    if job.train.run_dir and not job.where.job_name:
        name = re.sub(r"[^A-Za-z0-9]+", "-", job.train.run_dir.name)[:48].strip("-")
        if name:
            return name
    now = datetime.fromtimestamp(runtime.clock.now(), UTC).astimezone()
    return job_name(job, now, partial(_running, runtime))


def _running(runtime: Runtime) -> list[str]:
    """The jobs in the queue; none if Slurm does not answer, which is among the problems of the plan."""
    try:
        return [queued.name for queued in Slurm(environment(runtime.env)).queue()]
    except TrainerError:
        return []


def _facts(job: Job[SlurmOptions], name: str, runtime: Runtime) -> Facts:
    path: Path = runtime.cwd / job.train.run_dir if job.train.run_dir else folder_of(name, runtime.cwd)
    facts = Facts(
        read_folder(path),
        runtime.cwd,
        runtime.python,
        content=_content(job.train, runtime),
        earlier=earlier_jobs(job.train, name, runtime.cwd),
    )
    slurm = Slurm(environment(runtime.env))
    try:
        partitions, queue = tuple(slurm.partitions()), tuple(slurm.queue())
    except TrainerError as error:
        return replace(facts, trouble=error)
    return replace(facts, partitions=partitions, queue=queue)


def _content(train: Training, runtime: Runtime) -> Content | None:
    """The content of --data-url or --data-dir, if it was made by trainer.prepare and can be read here."""
    if train.data_url is not None:
        region = region_or_some(runtime.make_aws(None))  # S3 returns the bucket's region, and boto3 follows
        return content_at(runtime.make_aws(region), train.data_url)
    folder = train.folders.get("data_dir")
    if not train.reads_folder or folder is None:
        return None
    try:
        return content_in(read_json(runtime.cwd / folder.expanduser() / MANIFEST))
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None
