"""The environment that a user's script finds: its place among the ranks, and the variables of the contract.  Pure.

Whatever started this rank, the script finds what torchrun sets; SCRIPTS.md has the list.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from trainer.contract import DATA_DIR, JOB, RESTARTS, RUN_DIR, STOP_WITHIN, STOP_WITHIN_S
from trainer.distributed.ranks import Ranks
from trainer.errors import SettingsError
from trainer.script.config import ScriptConfig

# What says that a process is one rank among several.  For --processes one that is wrong: Lightning, Accelerate, mpi4py
# and the like would take their own first process for all of them.
_OF_ONE_RANK = re.compile(
    r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|(GROUP|ROLE|TORCHELASTIC|OMPI|MV2|PMI|PMIX|PRTE|SLURM_STEP)_\w+"
    r"|MPI_LOCAL(RANKID|NRANKS)|SLURM_(PROCID|LOCALID|NTASKS|NPROCS|NTASKS_PER_NODE|TASKS_PER_NODE))"
)
# What stands for a node's folders in the script's arguments.
RUN_WORD, DATA_WORD = "{run_dir}", "{data_dir}"
# Ports below those that Linux lends to outgoing connections (net.ipv4.ip_local_port_range).
_LOWEST_PORT, _PORTS = 15_000, 17_000
ON_PATH, _TOOLKIT = Path(__file__).with_name("on_path"), Path(__file__).parents[2]


def script_environment(config: ScriptConfig, ranks: Ranks, env: Mapping[str, str]) -> dict[str, str]:
    """The script's environment: `env`, in which this rank was started, and what we promise."""
    found = {name: value for name, value in env.items() if config.processes == "torchrun" or not _is_of_one_rank(name)}
    found |= _one_process(ranks) if config.processes == "one" else _as_torchrun(ranks, env)
    found |= dict(word.split("=", 1) for word in config.variables if "=" in word)
    found |= {
        RUN_DIR: str(config.run_dir.absolute()),
        JOB: config.job,
        RESTARTS: str(restarts(config, env)),
        STOP_WITHIN: str(STOP_WITHIN_S),
        "PYTHONUNBUFFERED": "1",
    }
    found.pop(DATA_DIR, None)
    if config.data_dir is not None:
        found[DATA_DIR] = str(config.data_dir.absolute())
    found["PYTHONPATH"] = _python_path(found.get("PYTHONPATH"))
    return found


def _python_path(given: str | None) -> str:
    """The user's own without our packages, which would hide his, and behind it `from trainer import kit`."""
    folders = given.split(":") if given else []
    return ":".join([*(one for one in folders if Path(one) != _TOOLKIT), str(ON_PATH)])


def command_of(config: ScriptConfig, env: Mapping[str, str]) -> list[str]:
    """The words that Python gets, with the folders of this node in the arguments that name them.

    env: the script's.  Raises SettingsError where an argument names the folder of the data, and there is none.
    """
    words = config.for_python
    if DATA_DIR not in env and any(DATA_WORD in word for word in words):
        raise SettingsError(f"an argument names {DATA_WORD}, and this job has no data; give it some, or leave it out.")
    return [word.replace(RUN_WORD, env[RUN_DIR]).replace(DATA_WORD, env.get(DATA_DIR, "")) for word in words]


def restarts(config: ScriptConfig, env: Mapping[str, str]) -> int:
    """How often the job was started again: by its launcher, and by torchrun."""
    before = config.restarts or _count(env, RESTARTS)  # a machine knows more than the command
    return before + _count(env, "TORCHELASTIC_RESTART_COUNT")


def _count(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def run_of(ranks: Ranks, env: Mapping[str, str]) -> str:
    """What all ranks of a run have in common, and those of another at the same time have not.

    It stays the same when they are started again, as on a new node, which finds the lock that the last start has left.
    """
    number = env.get("TORCHELASTIC_RUN_ID", "none")
    if number != "none":  # torchrun's own for static nodes
        return number
    others = ["SLURM_JOB_ID", *([] if "MASTER_PORT" in env else ["PMIX_NAMESPACE"])]
    return " ".join([f"{ranks.master_addr}:{ranks.master_port}", *(env[name] for name in others if name in env)])


def own_port(master_port: int) -> int:
    """The port for the processes of a job that starts them itself: every node computes the same from torchrun's.

    torchrun's own is in use, and nodes that have not met cannot agree on one that is free: rank 0's node tries it out.
    """
    return _LOWEST_PORT + (master_port + 1) % _PORTS


def _is_of_one_rank(name: str) -> bool:
    return _OF_ONE_RANK.fullmatch(name) is not None


def _one_process(ranks: Ranks) -> dict[str, str]:
    """Torchrun started one process on each node, so that its ranks are nodes."""
    return {
        "NNODES": str(ranks.nodes),
        "NODE_RANK": str(ranks.node_rank),
        "MASTER_ADDR": ranks.master_addr,
        "MASTER_PORT": str(own_port(ranks.master_port)),
    }


def _as_torchrun(ranks: Ranks, env: Mapping[str, str]) -> dict[str, str]:
    """https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables"""
    if ranks.source == "torchrun":
        return {}  # they are there
    return {
        "RANK": str(ranks.rank),
        "WORLD_SIZE": str(ranks.world_size),
        "LOCAL_RANK": str(ranks.local_rank),
        "LOCAL_WORLD_SIZE": str(ranks.local_world_size),
        "GROUP_RANK": str(ranks.node_rank),
        "GROUP_WORLD_SIZE": str(ranks.nodes),
        "ROLE_RANK": str(ranks.rank),
        "ROLE_WORLD_SIZE": str(ranks.world_size),
        "MASTER_ADDR": ranks.master_addr,
        "MASTER_PORT": str(ranks.master_port),
        "TORCHELASTIC_RUN_ID": "none",  # by which Lightning and others know that the ranks are there
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
