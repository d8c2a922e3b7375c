"""Looks up what a plan rests on, makes the plan, and has Slurm test its script.  Changes nothing."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from launch.aws.lookup import content_at, region_or_some
from launch.core.job import Job, default_job_name
from launch.core.manifest import MANIFEST, Content, content_in
from launch.core.training.base import Training
from launch.slurm import checks, planner
from launch.slurm.folder import earlier_jobs, read_folder
from launch.slurm.lookup import Slurm, environment
from launch.slurm.names import folder_of
from launch.slurm.options import SlurmOptions
from launch.slurm.planner import Facts, SlurmPlan
from launch.slurm.runtime import Runtime
from launch.slurm.script import directives
from trainer.contract import random_letters
from trainer.errors import TrainerError
from trainer.files import read_json


def plan_for(job: Job[SlurmOptions], runtime: Runtime) -> SlurmPlan:
    """The plan for `job`.  Raises SettingsError for settings that cannot work, before Slurm is asked."""
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
    """The job's name; the same each time where only --run-dir gives one."""
    if job.where.job_name:
        return job.where.job_name
    if job.train.run_dir:
        name = re.sub(r"[^A-Za-z0-9]+", "-", job.train.run_dir.name)[:48].strip("-")
        if name:
            return name
    now = datetime.fromtimestamp(runtime.clock.now(), UTC).astimezone()
    return default_job_name(job.train.label, now, random_letters())


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
    """What a folder of trainer.prepare holds, if --data-url or --data-dir is one and can be read here."""
    if train.data_url is not None:
        region = region_or_some(runtime.make_aws(None))  # S3 answers with the bucket's own, and boto3 asks there
        return content_at(runtime.make_aws(region), train.data_url)
    folder = train.folders.get("data_dir")
    if not train.reads_folder or folder is None:
        return None
    try:
        return content_in(read_json(runtime.cwd / folder.expanduser() / MANIFEST))
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None
