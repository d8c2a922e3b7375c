"""Job and facts -> what is submitted, where it is written, and what speaks against it.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from launch.core import catalog
from launch.core.clock import duration
from launch.core.estimate.forecast import forecast
from launch.core.estimate.training import training
from launch.core.estimate.words import hours, speed
from launch.core.job import Job
from launch.slurm import container
from launch.slurm.checks import against_cluster
from launch.slurm.listing import Partition, Queued
from launch.slurm.lookup import Folder
from launch.slurm.names import SCRIPT, command
from launch.slurm.options import SlurmOptions
from launch.slurm.script import Placed, render
from launch.slurm.times import limit_s
from trainer.config import TrainConfig
from trainer.errors import SettingsError, TrainerError


@dataclass(frozen=True)
class Facts:
    """What was looked up.  partitions, queue: empty where Slurm could not be asked, and trouble says why."""

    folder: Folder
    cwd: Path
    python: str
    partitions: tuple[Partition, ...] = ()
    queue: tuple[Queued, ...] = ()
    trouble: TrainerError | None = None


@dataclass(frozen=True)
class SlurmPlan:
    """What is submitted.  rows: lines of a label and a text; running: the same job, already in the queue; is_done: it
    came to its end before; edf: the text of edf.toml, if the job takes one.
    """

    placed: Placed
    title: str
    rows: tuple[tuple[str, str], ...]
    script: str
    edf: str | None
    warnings: tuple[str, ...] = ()
    problems: tuple[TrainerError, ...] = ()
    running: Queued | None = None
    is_done: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        return ("sbatch", "--parsable", str(self.placed.folder / SCRIPT))


def plan(job: Job[SlurmOptions], options: SlurmOptions, processes: int, name: str, facts: Facts) -> SlurmPlan:
    """The plan for `job`, whose options are resolved as checks.resolve() does."""
    placed = _placed(job.train, options, processes, name, facts)
    script = render(placed)
    running = next((queued for queued in facts.queue if queued.name == name), None)
    each = options.cpus_per_task
    problems = [*([facts.trouble] if facts.trouble else []), *_taken(placed, script, running, facts.folder)]
    problems += _foreign(facts.folder) if job.train.run_dir is None else []
    if facts.partitions and not running:
        problems += against_cluster(options, each and each * processes, facts.partitions)
    ended = facts.folder.ended()
    return SlurmPlan(
        placed=placed,
        title=f"launch.slurm: job {name}, {options.nodes} x {processes} process{'es' * (processes > 1)}",
        rows=_rows(placed, facts),
        script=script,
        edf=container.edf(options, placed.cwd, placed.needed),
        warnings=tuple(_warnings(placed)),
        problems=tuple(problems),
        running=running,
        is_done=bool(ended and ended["then"] == "done" and facts.folder.script == script),
    )


def tried(made: SlurmPlan, start: str | None, refusal: TrainerError | None) -> SlurmPlan:
    """`made` with what Slurm answered when it was asked whether it would take the job."""
    if refusal:
        return replace(made, problems=(*made.problems, refusal))
    return replace(made, rows=(*made.rows, ("start", f"expected by Slurm at {start}"))) if start else made


def _placed(train: TrainConfig, options: SlurmOptions, processes: int, name: str, facts: Facts) -> Placed:
    contained = container.is_used(options)
    update: dict[str, Any] = {"run_dir": facts.folder.path}
    if contained:
        update["data_dir"] = facts.cwd / train.data_dir.expanduser()
    return Placed(
        name=name,
        train=train.model_copy(update=update),
        options=options,
        folder=facts.folder.path,
        cwd=facts.cwd,
        python="python" if contained else facts.python,
        processes=processes,
    )


def _taken(placed: Placed, script: str, running: Queued | None, folder: Folder) -> list[TrainerError]:
    """Why the name cannot be had."""
    name = placed.name
    if running and running.folder != placed.folder:
        return [
            SettingsError(
                f"--job-name {name} is taken by job {running.id}, which writes to {running.folder}; take another name, "
                f"or end that with {command('stop', running.id)}"
            )
        ]
    if running and folder.script != script:
        return [
            SettingsError(
                f"job {name} is in the queue as {running.id} with other settings ({folder.path / SCRIPT}); end it with "
                f"{command('stop', name)}, or take another --job-name."
            )
        ]
    return []


def _foreign(folder: Folder) -> list[TrainerError]:
    """Whether the folder is somebody else's; one that --run-dir names may hold a run that began elsewhere."""
    if not folder.exists or folder.script is not None:
        return []
    sentence = f"{folder.path} is there already, and launch.slurm did not make it"
    return [SettingsError(f"{sentence}; take another --job-name, remove it, or go on with that run by --run-dir.")]


def _rows(placed: Placed, facts: Facts) -> tuple[tuple[str, str], ...]:
    o = placed.options
    limit = limit_s(o.time)
    kind = f"{o.gpu_type} " if o.gpu_type else ""
    what = f"{o.gpus_per_node} {kind}GPU{'s' * (o.gpus_per_node != 1)} each" if o.gpus_per_node else "no GPU"
    how = "torchrun on each node" if placed.is_torchrun else "srun, a task per process"
    rows = [
        ("nodes", f"{o.nodes}, {what}, in partition {_partition(o, facts.partitions)}"),
        ("processes", f"{o.nodes * placed.processes}, started by {how}"),
        ("time limit", f"{duration(timedelta(seconds=limit))} a start; saves {o.save_before_s} s before, and goes on"),
        ("starts", f"at most {o.max_restarts + 1}"),
        ("folder", str(placed.folder)),
    ]
    if container.is_used(o):
        rows.append(("container", str(o.container_edf or f"{o.container_image} ({o.container_runtime})")))
    units, unit = (o.gpus_per_node, "GPU") if o.gpus_per_node else (1, "node")
    most = o.nodes * (units or 1) * limit / 3600
    rows.append(("at most", f"{most:,.4g} {unit}-hours a start, {most * (o.max_restarts + 1):,.4g} in all"))
    if expected := _expected(placed, facts.partitions):
        rows.append(("expected", expected))
    return tuple(rows)


def _partition(options: SlurmOptions, partitions: Sequence[Partition]) -> str:
    default = next((part.name for part in partitions if part.is_default), "")
    return options.partition or (f"{default} (the default)" if default else "(the default)")


def _expected(placed: Placed, partitions: Sequence[Partition]) -> str | None:
    """What the catalog's numbers for the same GPU say, if Slurm tells which one it is and the tables know the job."""
    o = placed.options
    kinds = {kind for part in partitions for kind, _ in part.gpus if o.partition in (None, part.name)}
    model = (o.gpu_type or (kinds.pop() if len(kinds) == 1 else "")).upper()
    like = next((i for i in catalog.load().values() if model and (i.gpu_model or "").upper() == model), None)
    if like is None or not o.gpus_per_node:
        return None
    share = like.vcpus // like.gpus
    vcpus = (o.cpus_per_task or share) * placed.processes
    node = replace(like, gpus=o.gpus_per_node, vcpus=vcpus)
    try:
        guess = forecast(training(placed.train, node, o.nodes, on_ebs=False), node)
    except SettingsError:
        return None
    return f"{hours(guess.hours)}: {speed(guess)}"


def _warnings(placed: Placed) -> list[str]:
    o, found = placed.options, []
    if o.cpus_per_task is None:
        found.append(
            "without --cpus-per-task most clusters give each task one CPU, which cannot decode images for a GPU."
        )
    if o.container_edf:
        found.append(f"your EDF must mount {placed.folder} at the same place, or the results are lost.")
    return found
