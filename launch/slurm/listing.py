"""The output of Slurm's commands, parsed.  Pure; lookup.py runs the commands."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from launch.slurm.names import SCRIPT, job_in
from trainer.errors import SettingsError

# Columns are separated by tabs, as a comment or a path may hold anything else.  The comment comes last.
QUEUE = "\t".join(("%i", "%T", "%r", "%M", "%L", "%D", "%N", "%P", "%S", "%o", "%j", "%k"))
PARTITIONS = "\t".join(("%R", "%a", "%l", "%D", "%c", "%m", "%G"))


IsRecorded = Callable[[Path, str], bool]
TaskIn = Callable[[Path, int], tuple[str, Path] | None]


@dataclass(frozen=True)
class QueuedJob:
    """A job of the toolkit in Slurm's queue, with states and times as Slurm writes them."""

    id: str
    name: str
    state: str
    reason: str
    ran: str
    left: str
    nodes: int
    node_list: str
    partition: str
    starts_at: str
    script: Path  # in the job's folder
    array: tuple[str, Path] | None = None  # name and folder of the array of which it is a task

    @property
    def folder(self) -> Path:
        return self.script.parent

    @property
    def is_waiting(self) -> bool:
        return self.state == "PENDING"

    @property
    def number(self) -> tuple[int, int]:
        """'12_3' -> (12, 3)."""
        job, _, task = self.id.partition("_")
        return _leading_number(job), _leading_number(task)


@dataclass(frozen=True)
class Partition:
    """Nodes of one kind in a partition."""

    name: str
    is_default: bool
    is_up: bool
    limit_s: int | None  # None if unlimited
    nodes: int
    cpus: int
    memory_mb: int
    gpus: tuple[tuple[str, int], ...]  # per node, by type; '' if Slurm gives no type

    def gpus_of(self, gpu_type: str | None) -> int:
        """The number of GPUs of a type per node; for None, of all types."""
        return sum(count for name, count in self.gpus if gpu_type in (None, name))


def parse_queue(
    text: str, is_recorded: IsRecorded = lambda folder, name: False, task_in: TaskIn = lambda folder, number: None
) -> list[QueuedJob]:
    """The toolkit's jobs in squeue's output in the format QUEUE, one line per task; other jobs are left out.

    is_recorded: whether the folder records a job of that name, for sites that rewrite comments.
    task_in: the job of a task of the array in a folder.
    """
    return [_as_task(job, task_in) for job in _jobs(text, is_recorded)]


def _as_task(job: QueuedJob, task_in: TaskIn) -> QueuedJob:
    """The job, with its own name and folder if it is a task of an array."""
    task = task_in(job.folder, job.number[1]) if "_" in job.id else None
    if task is None:
        return job
    name, folder = task
    return replace(job, name=name, script=folder / SCRIPT, array=(job.name, job.folder))


def _jobs(text: str, is_recorded: IsRecorded) -> Iterator[QueuedJob]:
    for line in text.split("\n"):
        columns = line.split("\t", 11)
        if len(columns) < 12:  # part of another job's multi-line comment
            continue
        id_, state, reason, ran, left, nodes, node_list, partition, starts_at, script, job_name, comment = columns
        if Path(script).name != SCRIPT:
            continue
        name = job_in(comment) or (job_name if is_recorded(Path(script).parent, job_name) else None)
        if name is not None:
            count = _leading_number(nodes)
            yield QueuedJob(id_, name, state, reason, ran, left, count, node_list, partition, starts_at, Path(script))


def parse_default_partition(text: str) -> str | None:
    """The default partition in sinfo's output in the format '%P\t%R', where the two differ; None if there is none."""
    for line in text.splitlines():
        marked, name = line.split("\t")
        if marked != name:
            return name
    return None


def parse_partitions(text: str, default: str | None) -> list[Partition]:
    """sinfo's output in the format PARTITIONS.  default: the name of the default partition."""
    return [_partition(line.split("\t"), default) for line in text.splitlines()]


def _partition(columns: list[str], default: str | None) -> Partition:
    name, up, limit, nodes, cpus, memory, gres = columns
    return Partition(
        name=name,
        is_default=name == default,
        is_up=up == "up",
        limit_s=seconds_of(limit),
        nodes=_leading_number(nodes),
        cpus=_leading_number(cpus),
        memory_mb=_leading_number(memory),
        gpus=parse_gpus(gres),
    )


def parse_gpus(gres: str) -> tuple[tuple[str, int], ...]:
    """'gpu:a100:4(S:0-1),nvme:1' -> (('a100', 4),); the type is '' where Slurm gives none."""
    matches = re.findall(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)", gres)
    return tuple((gpu_type, int(count)) for gpu_type, count in matches)


def _leading_number(text: str) -> int:
    """'4+', which means at least 4, -> 4; 0 without a number."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0


def parse_state(text: str) -> str:
    """JobState in the output of `scontrol show job`; empty if it is missing."""
    match = re.search(r"\bJobState=(\S+)", text)
    return match[1] if match else ""


def parse_job_id(text: str) -> str:
    """The output of `sbatch --parsable`: '12' or '12;cluster' -> '12'."""
    return text.strip().splitlines()[-1].partition(";")[0]


def parse_most_tasks(text: str) -> int:
    """The maximum number of tasks of an array, in the output of `scontrol show config`; 0 if there are no arrays.

    https://slurm.schedmd.com/slurm.conf.html, MaxArraySize and max_array_tasks
    """
    limits = re.findall(r"^MaxArraySize\s*=\s*(\d+)|\bmax_array_tasks=(\d+)", text, re.MULTILINE)
    return min((int(size or tasks) for size, tasks in limits), default=0)


def parse_start(text: str) -> str | None:
    """'sbatch: Job 5 to start at 2026-11-22T04:13:16 using ...' -> the time; None if it is missing."""
    match = re.search(r"to start at (\S+)", text)
    return match[1] if match else None


_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
UNLIMITED = ("infinite", "UNLIMITED", "NOT_SET", "n/a")


def seconds_of(text: str) -> int | None:
    """'30', '30:00', '4:00:00', '1-12', '1-12:30', '1-12:30:00' -> seconds; None: no limit.

    One number is minutes, two are minutes and seconds, or hours and minutes after days.  Raises ValueError.
    """
    if text in UNLIMITED:
        return None
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(text)
    first, second, third = (int(match[name] or 0) for name in ("first", "second", "third"))
    if match["days"]:
        return int(match["days"]) * 86_400 + first * 3600 + second * 60 + third
    if match["third"]:
        return first * 3600 + second * 60 + third
    return first * 60 + second


def limit_s(time: str) -> int:
    """--time in seconds.  Raises SettingsError."""
    try:
        seconds = seconds_of(time)
    except ValueError as error:
        raise SettingsError(
            f"--time {time}: write minutes, H:MM:SS, D-H or D-HH:MM:SS, such as 4:00:00 or 1-12."
        ) from error
    if not seconds:
        raise SettingsError(
            f"--time {time}: a job needs a limit above 0, such as 4:00:00; at the limit it saves and requeues itself."
        )
    return seconds


def as_time(seconds: int) -> str:
    """9000 -> 2:30:00."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
