"""What Slurm's commands print -> what it means.  Pure; lookup.py asks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch.slurm.names import SCRIPT, job_in
from launch.slurm.times import seconds_of

# Tabs, for a comment or a path may hold anything else.  The comment comes last.
QUEUE = "\t".join(("%i", "%T", "%r", "%M", "%L", "%D", "%N", "%P", "%S", "%o", "%k"))
PARTITIONS = "\t".join(("%R", "%a", "%l", "%D", "%c", "%m", "%G", "%f"))


@dataclass(frozen=True)
class Queued:
    """A job of the toolkit in Slurm's queue.  state and reason: Slurm's words; ran, left: its times, as text."""

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
    script: Path

    @property
    def folder(self) -> Path:
        return self.script.parent

    @property
    def is_waiting(self) -> bool:
        return self.state == "PENDING"


@dataclass(frozen=True)
class Partition:
    """Nodes of a kind in a partition.  limit_s: None for none; gpus: of a node, by type ('' where untold)."""

    name: str
    is_default: bool
    is_up: bool
    limit_s: int | None
    nodes: int
    cpus: int
    memory_mb: int
    gpus: tuple[tuple[str, int], ...]
    features: tuple[str, ...]

    def gpus_of(self, kind: str | None) -> int:
        """How many GPUs of a type each node has; None: of any."""
        return max((count for name, count in self.gpus if kind in (None, name)), default=0)


def queued(text: str) -> list[Queued]:
    """The toolkit's jobs in what squeue printed in the format QUEUE; others are left out."""
    return list(_queued(text))


def _queued(text: str) -> Iterator[Queued]:
    for line in text.split("\n"):
        columns = line.split("\t", 10)
        if len(columns) < 11:  # a comment of somebody else's, with lines of its own
            continue
        id_, state, reason, ran, left, nodes, node_list, partition, starts_at, script, comment = columns
        name = job_in(comment)
        if name is not None and Path(script).name == SCRIPT:
            count = _leading(nodes)
            yield Queued(id_, name, state, reason, ran, left, count, node_list, partition, starts_at, Path(script))


def partitions(text: str, default: str | None) -> list[Partition]:
    """What sinfo printed in the format PARTITIONS."""
    return [_partition(line.split("\t"), default) for line in text.splitlines()]


def _partition(columns: list[str], default: str | None) -> Partition:
    name, up, limit, nodes, cpus, memory, gres, features = columns
    return Partition(
        name=name,
        is_default=name == default,
        is_up=up == "up",
        limit_s=seconds_of(limit),
        nodes=_leading(nodes),
        cpus=_leading(cpus),
        memory_mb=_leading(memory),
        gpus=gpus_in(gres),
        features=() if features == "(null)" else tuple(features.split(",")),
    )


def gpus_in(gres: str) -> tuple[tuple[str, int], ...]:
    """'gpu:a100:4(S:0-1),nvme:1' -> (('a100', 4),); a type that is not told is ''."""
    found = re.findall(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)", gres)
    return tuple((kind, int(count)) for kind, count in found)


def _leading(text: str) -> int:
    """'4+' -> 4: at least so many."""
    return int(re.match(r"\d*", text)[0] or 0)  # type: ignore[index]  # it always matches


def state_in(text: str) -> tuple[str, str]:
    """JobState and ExitCode of what `scontrol show job` printed; empty where it is not said."""
    state, code = re.search(r"\bJobState=(\S+)", text), re.search(r"\bExitCode=(\S+)", text)
    return state[1] if state else "", code[1] if code else ""


def job_id(text: str) -> str:
    """What `sbatch --parsable` printed: '12' or '12;cluster' -> '12'."""
    return text.strip().splitlines()[-1].partition(";")[0]


def start_in(text: str) -> str | None:
    """'sbatch: Job 5 to start at 2026-11-22T04:13:16 using ...' -> the time; None where it is not told."""
    found = re.search(r"to start at (\S+)", text)
    return found[1] if found else None
