"""The rank of this process in its job, read from the environment that a launcher set.  Pure.

Read in this order: torchrun, MPI (Open MPI is SageMaker's pytorchddp), Slurm, and else one process alone.
torchrun comes first because it is often started inside a Slurm job, whose own names then mean nodes; so is mpirun.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.errors import SettingsError

PORT = 29500  # torchrun's own default
# Per MPI: the variables with rank, world size, local rank and local world size; and mpirun's option to set a variable.
# Hydra starts the ranks of MPICH and Intel MPI; srun --mpi=pmi2 sets PMI_RANK, too, but no local rank.
MPI = {
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
        "-x MASTER_ADDR=HOST",
    ),
    "MVAPICH": (
        "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
        "-genv MASTER_ADDR HOST",
    ),
    "MPICH or Intel MPI": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "-genv MASTER_ADDR HOST"),
}  # fmt: skip


@dataclass(frozen=True)
class Ranks:
    """The rank of this process in its job.  All counts are of processes; node_rank and nodes are of machines."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    nodes: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = PORT
    source: str = "single"
    attempt: int = 0  # how often torchrun has restarted ranks that meet in one and the same store
    store_is_launchers: bool = False  # torchrun's agent hosts the store; else rank 0 does
    launcher_reports: bool = False  # torchrun reports how a rank of its node died, as no restart is left

    @property
    def is_head(self) -> bool:
        """Whether this is rank 0, which writes for all."""
        return self.rank == 0


def read_ranks(env: Mapping[str, str]) -> Ranks:
    """This process's ranks.  Raises SettingsError when the environment contradicts itself."""
    if "RANK" in env or "WORLD_SIZE" in env:
        return _checked(_torchrun(env))
    is_slurms = "SLURM_PROCID" in env and "SLURM_STEP_ID" in env  # else an sbatch or salloc shell: srun started no task
    for source, (rank, _, local_rank, *_) in MPI.items():
        if rank in env and (local_rank in env or not is_slurms):
            return _checked(_mpi(env, source))
    if is_slurms:
        return _checked(_slurm(env))
    if "PMIX_RANK" in env:
        raise SettingsError(
            "PMIx started this rank, and does not say how many there are; start with torchrun or mpirun."
        )
    return Ranks()


def _torchrun(env: Mapping[str, str]) -> Ranks:
    world = _number(env, "WORLD_SIZE", "torchrun")
    local_world = _number(env, "LOCAL_WORLD_SIZE", "torchrun", world)
    rank = _number(env, "RANK", "torchrun")
    restarts = _number(env, "TORCHELASTIC_RESTART_COUNT", "torchrun", 0)
    agent_store = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return Ranks(
        rank=rank,
        world_size=world,
        local_rank=_number(env, "LOCAL_RANK", "torchrun", rank % max(local_world, 1)),
        local_world_size=local_world,
        node_rank=_number(env, "GROUP_RANK", "torchrun", rank // max(local_world, 1)),
        nodes=_number(env, "GROUP_WORLD_SIZE", "torchrun", max(1, world // max(local_world, 1))),
        master_addr=env.get("MASTER_ADDR", "127.0.0.1"),
        master_port=_number(env, "MASTER_PORT", "torchrun", PORT),
        source="torchrun",
        # Otherwise each attempt has a new store, and nodes may count differently.
        attempt=restarts if agent_store else 0,
        store_is_launchers=agent_store,
        launcher_reports=env.get("TORCHELASTIC_MAX_RESTARTS") == str(restarts),
    )


def _mpi(env: Mapping[str, str], source: str) -> Ranks:
    rank_name, world_name, local_rank_name, local_world_name, option = MPI[source]
    world = _number(env, world_name, source)
    local_world = _number(env, local_world_name, source, world)
    rank = _number(env, rank_name, source)
    if world > local_world and "MASTER_ADDR" not in env:
        raise SettingsError(
            f"{source} started ranks on several hosts but MASTER_ADDR is not set; "
            f"pass the first host with mpirun {option}."
        )
    return Ranks(
        rank=rank,
        world_size=world,
        local_rank=_number(env, local_rank_name, source, 0 if world == 1 else None),
        local_world_size=local_world,
        # OMPI_COMM_WORLD_NODE_RANK would be this rank's place within its node.
        node_rank=rank // max(local_world, 1),
        nodes=max(1, world // max(local_world, 1)),
        master_addr=env.get("MASTER_ADDR", "127.0.0.1"),
        master_port=_number(env, "MASTER_PORT", source, PORT),
        source=source,
    )


def _slurm(env: Mapping[str, str]) -> Ranks:
    world = _number(env, "SLURM_STEP_NUM_TASKS", "Slurm", _number(env, "SLURM_NTASKS", "Slurm", 1))
    nodes = _number(env, "SLURM_STEP_NUM_NODES", "Slurm", _number(env, "SLURM_NNODES", "Slurm", 1))
    job = int(re.sub(r"\D", "", env.get("SLURM_JOB_ID", "0")) or 0)
    node_list = env.get("SLURM_STEP_NODELIST", env.get("SLURM_NODELIST", ""))
    tasks = env.get("SLURM_STEP_TASKS_PER_NODE", str(world // max(nodes, 1)))
    node_rank = _number(env, "SLURM_NODEID", "Slurm", 0)
    return Ranks(
        rank=_number(env, "SLURM_PROCID", "Slurm"),
        world_size=world,
        local_rank=_number(env, "SLURM_LOCALID", "Slurm"),
        local_world_size=tasks_per_node(tasks, nodes)[node_rank] if nodes > node_rank else world,
        node_rank=node_rank,
        nodes=nodes,
        master_addr=env.get("MASTER_ADDR") or (first_host(node_list) if nodes > 1 else "127.0.0.1"),
        # Jobs that share a node must not share a port; every rank can compute this one.  Below the ephemeral ports.
        master_port=_number(env, "MASTER_PORT", "Slurm", 15_000 + job % 17_000),
        source="Slurm",
    )


def first_host(node_list: str) -> str:
    """The first name in Slurm's compressed host list: 'gpu[03-05,9],login' -> 'gpu03'."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", node_list)
    if not first:
        raise SettingsError(f"SLURM_NODELIST={node_list!r} names no host; set MASTER_ADDR to the first node.")
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0])


def tasks_per_node(text: str, nodes: int) -> list[int]:
    """Slurm's '2(x3),1' -> [2, 2, 2, 1], one entry per node."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts if len(counts) == nodes else [max(counts, default=1)] * nodes


def _number(env: Mapping[str, str], name: str, source: str, default: int | None = None) -> int:
    text = env.get(name)
    if text is None:
        if default is None:
            raise SettingsError(f"{source} set some rank variables but not {name}; start all ranks with one launcher.")
        return default
    if not text.isdigit():
        raise SettingsError(f"{name}={text!r} must be a whole number; unset it or start with torchrun.")
    return int(text)


def _checked(ranks: Ranks) -> Ranks:
    for wrong, sentence in (
        (ranks.world_size < 1, f"a world of {ranks.world_size} ranks is empty"),
        (ranks.rank >= ranks.world_size, f"rank {ranks.rank} does not fit in a world of {ranks.world_size}"),
        (
            ranks.local_rank >= ranks.local_world_size,
            f"local rank {ranks.local_rank} does not fit among {ranks.local_world_size} on this node",
        ),
        (
            ranks.local_world_size > ranks.world_size,
            f"{ranks.local_world_size} ranks on this node are more than the {ranks.world_size} of the job",
        ),
        (ranks.node_rank >= ranks.nodes, f"node {ranks.node_rank} does not fit among {ranks.nodes} nodes"),
    ):
        if wrong:
            raise SettingsError(f"{ranks.source} says that {sentence}; unset stale variables and restart all ranks.")
    return ranks
