"""What can be said against a job before Slurm is asked, and from what sinfo tells: Slurm itself would let it wait for
ever.  Pure.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from launch.core.job import Job
from launch.core.names import check_job_name
from launch.slurm import container
from launch.slurm.listing import Partition
from launch.slurm.options import SlurmOptions
from launch.slurm.times import limit_s
from trainer.config import check_batches
from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean

_TEXTS = ("gpu_type", "mem", "partition", "account", "qos", "constraint", "reservation", "mail", "time", "sbatch",
          "nodelist", "exclude")  # fmt: skip
# Flags of sbatch that would take a job out of our sight, or several into one folder.
_OURS = ("--array", "-a", "--comment", "--job-name", "-J", "--output", "-o", "--error", "-e", "--open-mode", "--chdir",
         "-D", "--signal", "--wrap", "--wait", "-W", "--no-requeue")  # fmt: skip


def resolve(job: Job[SlurmOptions]) -> tuple[SlurmOptions, int]:
    """The options with their defaults filled in, and the processes per node.  Raises SettingsError."""
    options = job.where
    gpus = _gpus(job)
    processes = options.nproc_per_node or (1 if job.train.strategy == "dp" else max(1, gpus))
    if gpus and processes > gpus:
        raise SettingsError(
            f"--nproc-per-node {processes} with --gpus-per-node {gpus}: each process needs a GPU of its own; "
            "give fewer processes or more GPUs."
        )
    if job.train.strategy in ("dp", "single") and options.nodes * processes > 1:
        raise SettingsError(
            f"--strategy {job.train.strategy} trains in one process, not {options.nodes * processes}; give --nodes 1 "
            "--nproc-per-node 1, or --strategy ddp."
        )
    check_batches(job.train, options.nodes * processes)
    _check_texts(options)
    container.check(options)
    if options.job_name is not None:
        check_job_name(options.job_name)
    if limit_s(options.time) <= options.save_before_s:
        raise SettingsError(
            f"--time {options.time} leaves nothing to train before the save {options.save_before_s} s ahead of its "
            "end; give more time or a smaller --save-before-s."
        )
    return options.model_copy(update={"gpus_per_node": gpus}), processes


def _gpus(job: Job[SlurmOptions]) -> int:
    gpus, on_cpu = job.where.gpus_per_node, job.train.device == "cpu"
    if on_cpu and (gpus or job.where.gpu_type):
        raise SettingsError("--device cpu uses no GPU; leave --gpus-per-node and --gpu-type out.")
    if gpus is None:
        return 0 if on_cpu else 1
    if gpus == 0 and job.train.device == "cuda":
        raise SettingsError("--device cuda needs --gpus-per-node of at least 1.")
    return gpus


def _check_texts(options: SlurmOptions) -> None:
    for name in _TEXTS:
        if any(not c.isprintable() for c in "".join(getattr(options, name) or "")):
            raise SettingsError(f"--{name.replace('_', '-')} must be a single line.")
    try:
        words = shlex.split(options.sbatch)
    except ValueError as error:
        raise SettingsError(f"--sbatch {options.sbatch}: {error}; close every quote.") from error
    for word in words:
        if (word.partition("=")[0] if word.startswith("--") else word[:2]) in _OURS:
            raise SettingsError(f"--sbatch {word}: launch.slurm says that itself, to find the job again; leave it out.")


def against_cluster(
    options: SlurmOptions, cpus_per_node: int | None, partitions: Sequence[Partition]
) -> list[SettingsError]:
    """What the cluster's partitions cannot give.  cpus_per_node: that the job asks for, if it says.

    partitions: as sinfo tells them; a partition is there once for each kind of node that it has.
    """
    names = list(dict.fromkeys(part.name for part in partitions))
    if options.partition is not None:
        # Slurm takes the first of several that has room.
        unknown = [name for name in options.partition.split(",") if name not in names]
        if unknown:
            near = did_you_mean(unknown[0], names)
            return [SettingsError(f"the cluster has no partition {unknown[0]}{near or '.'}")]
        chosen = [part for part in partitions if part.name in options.partition.split(",")]
    else:
        chosen = [part for part in partitions if part.is_default]
        if not chosen:
            return [
                SettingsError(f"the cluster has no default partition; give --partition, one of {', '.join(names)}.")
            ]
    return [SettingsError(sentence) for sentence in _shortages(options, cpus_per_node, chosen)]


def _shortages(options: SlurmOptions, cpus_per_node: int | None, parts: Sequence[Partition]) -> Iterator[str]:
    where = f"partition {' or '.join(dict.fromkeys(part.name for part in parts))}"
    if not any(part.is_up for part in parts):
        yield f"{where} is closed; give another as --partition, or wait for it."
    limits = [part.limit_s for part in parts]
    longest = max((limit for limit in limits if limit is not None), default=None)
    if None not in limits and longest is not None and limit_s(options.time) > longest:
        yield (
            f"--time {options.time} is over the limit of {where}, which is {_as_time(longest)}; give --time "
            f"{_as_time(longest)}: the job goes on after it, by itself, up to --max-restarts times."
        )
    gpus, kind = options.gpus_per_node or 0, f" of type {options.gpu_type}" if options.gpu_type else ""
    most = max(part.gpus_of(options.gpu_type) for part in parts)
    if gpus > most:
        has = f"its nodes have at most {most}{kind}" if most else f"its nodes have none{kind}"
        kinds = sorted({name for part in parts for name, _ in part.gpus if name})
        known = f" Types there: {', '.join(kinds)}." if kinds and kind else ""
        yield f"--gpus-per-node {gpus}{kind} is more than {where} has: {has}; give fewer, or --device cpu.{known}"
        return
    if cpus_per_node is not None and cpus_per_node > max(part.cpus for part in parts):
        most = max(part.cpus for part in parts)
        yield (
            f"the processes of a node ask for {cpus_per_node} CPUs, and nodes of {where} have {most}; lower "
            "--cpus-per-task."
        )
        return
    memory = max(part.memory_mb for part in parts)
    if (_mib(options.mem) or 0) > memory:
        yield f"--mem {options.mem} is more than nodes of {where} have: {memory:,} MiB; give less."
        return
    fit = [part for part in parts if part.gpus_of(options.gpu_type) >= gpus and part.cpus >= (cpus_per_node or 1)]
    there = sum(part.nodes for part in fit)
    if options.nodes > there:
        yield f"--nodes {options.nodes} is more than {where} has of such nodes: {there}; give fewer."


def _mib(mem: str | None) -> int | None:
    """--mem in MiB; None where Slurm shall judge it."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", mem or "", re.IGNORECASE)
    return found and int(int(found[1]) * 1024.0 ** ("KMGT".index(found[2].upper() or "M") - 1))


def _as_time(seconds: int) -> str:
    """9000 -> 2:30:00."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
