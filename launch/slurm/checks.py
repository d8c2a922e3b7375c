"""Checks before a job is submitted: contradictory settings, and requests that no partition of the cluster can meet,
for which Slurm may let a job wait forever.  Pure.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launch.core.job import Job, check_job_name
from launch.slurm import container
from launch.slurm.listing import Partition, as_time, limit_s
from launch.slurm.options import SlurmOptions
from trainer.errors import SettingsError, did_you_mean

_ONE_LINE = ("gpu_type", "mem", "partition", "account", "qos", "constraint", "reservation", "mail", "time", "sbatch",
             "nodelist", "exclude")  # fmt: skip
# Flags of sbatch that would hide a job from the toolkit, or put several jobs into one folder.
_RESERVED = ("--array", "-a", "--comment", "--job-name", "-J", "--output", "-o", "--error", "-e", "--open-mode",
             "--chdir", "-D", "--signal", "--wrap", "--wait", "-W", "--no-requeue")  # fmt: skip


def resolve(job: Job[SlurmOptions]) -> tuple[SlurmOptions, int]:
    """The options with all defaults resolved, and the processes per node.  Raises SettingsError."""
    options, train = job.where, job.train
    gpus = _gpus(job)
    processes = train.processes(options.nproc_per_node, gpus)
    if gpus and processes > gpus:
        raise SettingsError(
            f"--nproc-per-node {processes} with --gpus-per-node {gpus}: each process needs a GPU of its own; "
            "give fewer processes or more GPUs."
        )
    train.check_ranks(options.nodes, processes)
    _check_one_line(options)
    _check_sbatch(options.sbatch)
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


def _check_one_line(options: SlurmOptions) -> None:
    for name in _ONE_LINE:
        text = "".join(getattr(options, name) or "")
        if not text.isprintable():
            raise SettingsError(f"--{name.replace('_', '-')} must be a single line.")


def _check_sbatch(flags: str) -> None:
    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise SettingsError(f"--sbatch {flags}: {error}; close every quote.") from error
    for word in words:
        flag = word.partition("=")[0] if word.startswith("--") else word[:2]
        if flag in _RESERVED:
            raise SettingsError(f"--sbatch {word}: launch.slurm sets that flag itself; leave it out.")


@dataclass(frozen=True)
class Demand:
    """What a job requests, and the partitions that it may run in."""

    options: SlurmOptions
    cpus: int | None  # per node, None if the job does not request a number
    partitions: Sequence[Partition]

    @property
    def gpus(self) -> int:
        return self.options.gpus_per_node or 0

    @property
    def where(self) -> str:
        return f"partition {' or '.join(dict.fromkeys(partition.name for partition in self.partitions))}"


def against_cluster(
    options: SlurmOptions, cpus_per_node: int | None, partitions: Sequence[Partition]
) -> list[SettingsError]:
    """Requests of the job that the cluster's partitions cannot meet.  cpus_per_node: None if not requested.

    partitions: as sinfo lists them, once for each kind of node.
    """
    try:
        chosen = _chosen(options.partition, partitions)
    except SettingsError as error:
        return [error]
    demand = Demand(options, cpus_per_node, chosen)
    unmet = [need(demand) for need in PARTITION_NEEDS]
    # Only the first problem: the others follow from it.
    unmet.append(next((sentence for need in NODE_NEEDS if (sentence := need(demand))), None))
    return [SettingsError(sentence) for sentence in unmet if sentence]


def _chosen(names: str | None, partitions: Sequence[Partition]) -> list[Partition]:
    """The partitions in --partition, or the default one.  Raises SettingsError if there is none."""
    known = list(dict.fromkeys(partition.name for partition in partitions))
    wanted = names.split(",") if names else [_default(partitions, known)]
    for name in wanted:
        if name not in known:
            raise SettingsError(f"the cluster has no partition {name}{did_you_mean(name, known) or '.'}")
    return [partition for partition in partitions if partition.name in wanted]


def _default(partitions: Sequence[Partition], known: Sequence[str]) -> str:
    for partition in partitions:
        if partition.is_default:
            return partition.name
    raise SettingsError(f"the cluster has no default partition; give --partition, one of {', '.join(known)}.")


def _need_open_partition(demand: Demand) -> str | None:
    if any(partition.is_up for partition in demand.partitions):
        return None
    return f"{demand.where} is down; give another --partition, or wait until it is up."


def _need_time(demand: Demand) -> str | None:
    limits = [partition.limit_s for partition in demand.partitions if partition.limit_s is not None]
    if len(limits) < len(demand.partitions):  # one has no limit
        return None
    longest, time = max(limits), demand.options.time
    if limit_s(time) <= longest:
        return None
    return (
        f"--time {time} exceeds the limit of {demand.where}, which is {as_time(longest)}; give --time "
        f"{as_time(longest)}: at its limit the job saves and requeues itself, up to --max-restarts times."
    )


def _need_gpus(demand: Demand) -> str | None:
    gpus, gpu_type = demand.gpus, demand.options.gpu_type
    most = max(partition.gpus_of(gpu_type) for partition in demand.partitions)
    if gpus <= most:
        return None
    of_type = f" of type {gpu_type}" if gpu_type else ""
    count = f"at most {most}" if most else "none"
    sentence = (
        f"--gpus-per-node {gpus}{of_type} is more than {demand.where} has: its nodes have {count}{of_type}; give "
        "fewer, or --device cpu."
    )
    types = sorted({name for partition in demand.partitions for name, _ in partition.gpus if name})
    return f"{sentence} Its types: {', '.join(types)}." if types and gpu_type else sentence


def _need_cpus(demand: Demand) -> str | None:
    most = max(partition.cpus for partition in demand.partitions)
    if demand.cpus is None or demand.cpus <= most:
        return None
    return (
        f"the processes of a node ask for {demand.cpus} CPUs, and nodes of {demand.where} have {most}; lower "
        "--cpus-per-task."
    )


def _need_memory(demand: Demand) -> str | None:
    most = max(partition.memory_mb for partition in demand.partitions)
    if _mib(demand.options.mem) <= most:
        return None
    return f"--mem {demand.options.mem} is more than nodes of {demand.where} have: {most:,} MiB; give less."


def _need_nodes(demand: Demand) -> str | None:
    suitable = 0
    for partition in demand.partitions:
        if partition.gpus_of(demand.options.gpu_type) >= demand.gpus and partition.cpus >= (demand.cpus or 1):
            suitable += partition.nodes
    if demand.options.nodes <= suitable:
        return None
    return f"--nodes {demand.options.nodes} is more than {demand.where} has of such nodes: {suitable}; give fewer."


# Each returns a sentence, or None if the partitions meet the request.
Need = Callable[[Demand], str | None]
PARTITION_NEEDS: tuple[Need, ...] = (_need_open_partition, _need_time)
NODE_NEEDS: tuple[Need, ...] = (_need_gpus, _need_cpus, _need_memory, _need_nodes)


def _mib(mem: str | None) -> int:
    """--mem in MiB; 0 for a value that only Slurm can interpret."""
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", mem or "", re.IGNORECASE)
    if not match:
        return 0
    power = "KMGT".index(match[2].upper() or "M") - 1
    return int(int(match[1]) * 1024.0**power)
