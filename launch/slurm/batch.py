"""Submits several jobs as job arrays.  Status, stop, logs and attach refer to each by its own name."""

import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from launch.core import templates
from launch.core.clock import Clock
from launch.core.job import Batch, Member
from launch.slurm import checks
from launch.slurm.folder import details, note, read_folder
from launch.slurm.listing import QueuedJob, parse_job_id, parse_most_tasks
from launch.slurm.lookup import Slurm, environment
from launch.slurm.names import ARRAY_LOG, LOG, SCRIPT, command, comment_of
from launch.slurm.planner import Facts, SlurmPlan, plan
from launch.slurm.runtime import Runtime
from launch.slurm.script import ResolvedJob, directives, with_directives
from launch.slurm.submit import write_files
from trainer.errors import SettingsError
from trainer.files import write_atomically

# sbatch's flags that differ between jobs.  An array's tasks share a name, so a singleton would wait for its own array.
OWN = re.compile(r"--(job-name|comment|output)=|--dependency=singleton$")


@dataclass(frozen=True)
class Array:
    """A job array."""

    name: str  # shared by all arrays of a sweep
    folder: Path  # of this array, with a unique name
    tasks: Sequence[ResolvedJob]  # by index
    at_once: int

    @property
    def token(self) -> str:
        """Identifies the array in the folder of each of its jobs."""
        return self.folder.name

    @property
    def directives(self) -> list[str]:
        """sbatch's flags."""
        return [
            f"--job-name={self.name}",
            f"--comment={comment_of(self.name)}",
            f"--array=0-{len(self.tasks) - 1}%{self.at_once}",
            f"--output={str(self.folder).replace('%', '%%')}/{ARRAY_LOG}",
            *_shared(self.tasks[0]),
        ]

    @property
    def script(self) -> str:
        folders = [str(task.folder) for task in self.tasks]
        body = templates.fill("slurm/array.sbatch", {"ARRAY": self.token, "FOLDERS": folders})
        return with_directives(body, self.directives)


def _shared(job: ResolvedJob) -> list[str]:
    """The flags that all tasks of an array share: machines, time limit and working directory."""
    return [flag for flag in directives(job) if not OWN.match(flag)]


def divided(jobs: Sequence[ResolvedJob], most_tasks: int) -> Iterator[tuple[ResolvedJob, ...]]:
    """Group jobs into arrays: with equal flags, at most `most_tasks` each, ordered by their first job."""
    alike: dict[tuple[str, ...], list[ResolvedJob]] = {}
    for job in jobs:
        alike.setdefault(tuple(_shared(job)), []).append(job)
    for group in alike.values():
        for start in range(0, len(group), most_tasks):
            yield tuple(group[start : start + most_tasks])


# In the batch's folder; it has a folder for each array.
ARRAYS = ".arrays"


def submit(members: Sequence[Member], batch: Batch) -> list[str]:
    """Submit the jobs, of which `batch.at_once` run at a time.  Raises TrainerError.

    Returns the names of the jobs to attach to, in the order in which Slurm starts them.  Jobs that are in the queue, or
    have ended while no launcher followed them, are included but not submitted again.  Jobs that cannot be submitted
    are left out; on clusters without arrays, all are.
    """
    runtime = Runtime(batch.env, Path.cwd(), sys.executable, Clock(), batch.say)
    slurm = Slurm(environment(runtime.env))
    if (most_tasks := _most_tasks(slurm)) < 2:
        return []
    partitions, queue = tuple(slurm.partitions()), tuple(slurm.queue())
    ended, queued, new = list[str](), list[QueuedJob](), list[SlurmPlan]()
    for member in members:
        folder = read_folder(runtime.cwd / member.folder)
        planned = _plan(member, Facts(folder, runtime.cwd, runtime.python, partitions, queue))
        if planned.problem:
            continue
        if planned.payload.queued:
            queued.append(planned.payload.queued)
            _record(folder.path, planned.payload.queued)
        elif _has_ended(member, planned):
            ended.append(member.name)
        else:
            new.append(planned)
    earlier = dict.fromkeys(str(job.number[0]) for job in queue if job.array and job.array[0] == batch.name)
    submitted = _Arrays(batch, slurm, runtime).submit(new, list(earlier), most_tasks)
    return [*ended, *(job.name for job in sorted(queued, key=lambda job: job.number)), *submitted]


def _most_tasks(slurm: Slurm) -> int:
    """The maximum number of tasks of an array; 0 if the cluster has no arrays or does not show its configuration."""
    try:
        return parse_most_tasks(slurm.run("scontrol", "show", "config"))
    except SettingsError:
        return 0


def _plan(member: Member, facts: Facts) -> SlurmPlan:
    train = member.job.train.at(run_dir=member.folder)
    where = member.job.where.model_copy(update={"job_name": member.name})
    job = replace(member.job, train=train, where=where)
    options, processes = checks.resolve(job)
    return plan(job, options, processes, member.name, facts)


def _has_ended(member: Member, planned: SlurmPlan) -> bool:
    """Whether the job is done, or has ended with an outcome that was not read yet."""
    submission = planned.payload
    return submission.is_done or (member.is_unseen and read_folder(submission.job.folder).last_start is not None)


def _record(folder: Path, queued: QueuedJob) -> None:
    """Record the queued job's id in the job's folder, as a killed sweep may not have."""
    spec = read_folder(folder)
    if queued.array and spec.ids[-1:] != (queued.id,):
        note(folder, queued.name, [*spec.ids, queued.id], array=queued.array[1].name, log_start=spec.log_start)


@dataclass(frozen=True)
class _Arrays:
    batch: Batch
    slurm: Slurm
    runtime: Runtime

    def submit(self, plans: Sequence[SlurmPlan], earlier: Sequence[str], most_tasks: int) -> list[str]:
        """Submit the arrays, each to begin when the previous ones have ended; return the jobs' names.

        earlier: ids of arrays of these jobs in the queue; most_tasks: the cluster's limit for an array.
        """
        say, at_once = self.runtime.say, self.batch.at_once
        for array_id in earlier:
            with suppress(SettingsError):  # some of its tasks may have ended by now
                self.slurm.run("scontrol", "update", f"jobid={array_id}", f"arraytaskthrottle={at_once}")
        for planned in plans:
            write_files(planned)
        arrays = list(divided([planned.payload.job for planned in plans], most_tasks))
        before = list(earlier)
        for jobs in arrays:
            array = Array(self.batch.name, self._new_folder(), jobs, at_once)
            if (array := self._claimed(array)).tasks:
                before = [self._submit(array, before)]
                runs = f"{len(array.tasks)} runs are" if len(array.tasks) > 1 else "1 run is"
                say(f"{runs} submitted as job array {before[0]}, {at_once} at a time")
        say(f"all continue without this command; to end them: {command('stop', self.batch.name)}")
        return [job.name for jobs in arrays for job in jobs]

    def _new_folder(self) -> Path:
        return self.runtime.cwd / self.batch.folder / ARRAYS / uuid.uuid4().hex[:8]

    def _claimed(self, array: Array) -> Array:
        """The array without jobs that were queued just now: sbatch may outlive a sweep that was killed.

        From now on the jobs belong to this array: tasks of other arrays skip them.
        """
        for job in array.tasks:
            log = job.folder / LOG
            size = log.stat().st_size if log.exists() else 0
            note(job.folder, job.name, read_folder(job.folder).ids, array=array.token, log_start=size)
        late = {job.name: job for job in self.slurm.queue()}
        for job in array.tasks:
            if queued := late.get(job.name):
                _record(job.folder, queued)
        return replace(array, tasks=[job for job in array.tasks if job.name not in late])

    def _submit(self, array: Array, before: Iterable[str]) -> str:
        """Submit the array and return its Slurm id.  before: ids of the arrays that it waits for."""
        array.folder.mkdir(parents=True)
        write_atomically(array.folder / SCRIPT, array.script)
        note(array.folder, array.name, [], tasks=[str(job.folder) for job in array.tasks])
        after = [f"--dependency=afterany:{':'.join(before)}"] if before else []
        slurm = Slurm(environment(self.runtime.env, array.directives))
        options = array.tasks[0].options
        array_id = parse_job_id(slurm.run("sbatch", "--parsable", *after, str(array.folder / SCRIPT), options=options))
        for number, job in enumerate(array.tasks):
            spec = read_folder(job.folder)
            ids = [*spec.ids, f"{array_id}_{number}"]
            note(job.folder, job.name, ids, array=array.token, log_start=spec.log_start, **details(job))
        return array_id
