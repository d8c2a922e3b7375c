"""The environment variables of a user's script: its rank, and those that SCRIPTS.md documents.  Pure.

The script always gets the variables that torchrun sets, whichever launcher started this rank.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from trainer.contract import DATA_DIR, JOB, RESTARTS, RUN_DIR, STOP_WITHIN, STOP_WITHIN_S
from trainer.distributed.ranks import Ranks
from trainer.errors import SettingsError
from trainer.script.config import ScriptConfig

# Variables that mark a process as one of several ranks.  Removed for --processes one: Lightning, Accelerate, mpi4py and
# others would otherwise take their first process for a rank that was already launched.
_OF_ONE_RANK = re.compile(
    r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|(GROUP|ROLE|TORCHELASTIC|OMPI|MV2|PMI|PMIX|PRTE|SLURM_STEP)_\w+"
    r"|MPI_LOCAL(RANKID|NRANKS)|SLURM_(PROCID|LOCALID|NTASKS|NPROCS|NTASKS_PER_NODE|TASKS_PER_NODE))"
)
# Placeholders in the script's arguments for the node's folders.
RUN_WORD, DATA_WORD = "{run_dir}", "{data_dir}"
# Below the ports that Linux uses for outgoing connections (net.ipv4.ip_local_port_range).
_LOWEST_PORT, _PORTS = 15_000, 17_000
ON_PATH, _TOOLKIT = Path(__file__).with_name("on_path"), Path(__file__).parents[2]


def script_environment(config: ScriptConfig, ranks: Ranks, env: Mapping[str, str]) -> dict[str, str]:
    """The script's environment: `env`, in which this rank was started, plus the documented variables."""
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
    """PYTHONPATH without the toolkit, which could shadow the user's packages; `trainer.kit` stays importable."""
    folders = given.split(":") if given else []
    return ":".join([*(one for one in folders if Path(one) != _TOOLKIT), str(ON_PATH)])


def command_of(config: ScriptConfig, env: Mapping[str, str]) -> list[str]:
    """The arguments for Python, with the placeholders replaced by this node's folders.

    env: the script's.  Raises SettingsError if an argument names the data folder and there is none.
    """
    words = config.for_python
    if DATA_DIR not in env and any(DATA_WORD in word for word in words):
        raise SettingsError(f"an argument names {DATA_WORD}, and this job has no data; give it some, or leave it out.")
    return [word.replace(RUN_WORD, env[RUN_DIR]).replace(DATA_WORD, env.get(DATA_DIR, "")) for word in words]


def restarts(config: ScriptConfig, env: Mapping[str, str]) -> int:
    """How often the job was restarted, by its launcher and by torchrun."""
    before = config.restarts or _count(env, RESTARTS)  # the environment is newer than the command line
    return before + _count(env, "TORCHELASTIC_RESTART_COUNT")


def _count(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def run_of(ranks: Ranks, env: Mapping[str, str]) -> str:
    """An identifier shared by all ranks of a run, and different from that of any concurrent run.

    It survives restarts, so that a restarted run recognizes its own lock, also on a new node.
    """
    number = env.get("TORCHELASTIC_RUN_ID", "none")
    if number != "none":  # torchrun's default
        return number
    others = ["SLURM_JOB_ID", *([] if "MASTER_PORT" in env else ["PMIX_NAMESPACE"])]
    return " ".join([f"{ranks.master_addr}:{ranks.master_port}", *(env[name] for name in others if name in env)])


def own_port(master_port: int) -> int:
    """The master port for a script that starts its own processes; every node computes it from torchrun's port.

    torchrun's port is in use, and the nodes cannot agree on a free one before they connect; rank 0's node tests it.
    """
    return _LOWEST_PORT + (master_port + 1) % _PORTS


def _is_of_one_rank(name: str) -> bool:
    return _OF_ONE_RANK.fullmatch(name) is not None


def _one_process(ranks: Ranks) -> dict[str, str]:
    """Variables for --processes one, where each torchrun rank stands for a whole node."""
    return {
        "NNODES": str(ranks.nodes),
        "NODE_RANK": str(ranks.node_rank),
        "MASTER_ADDR": ranks.master_addr,
        "MASTER_PORT": str(own_port(ranks.master_port)),
    }


def _as_torchrun(ranks: Ranks, env: Mapping[str, str]) -> dict[str, str]:
    """Variables that torchrun would set.

    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    """
    if ranks.source == "torchrun":
        return {}  # already set
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
        "TORCHELASTIC_RUN_ID": "none",  # Lightning and others take it to mean that the ranks are already launched
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
