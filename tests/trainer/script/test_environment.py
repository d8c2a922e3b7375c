"""A script finds torchrun's variables with every launcher; one that starts its own processes finds none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from trainer.distributed.ranks import read_ranks
from trainer.script.config import ScriptConfig
from trainer.script.environment import ON_PATH, own_port, script_environment

SLURM = {
    "SLURM_PROCID": "3", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2",
    "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "7777", "PMIX_RANK": "3",
}  # fmt: skip
INTEL_MPI = {
    "PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "MASTER_ADDR": "n1",
    "MASTER_PORT": "7777",
}  # fmt: skip
TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "29400", "TORCHELASTIC_RUN_ID": "x",
    "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip


def environment(env: Mapping[str, str], **flags: Any) -> dict[str, str]:
    config = ScriptConfig(run_dir=Path("/run"), words=("t.py",), **flags)
    return script_environment(config, read_ranks(env), env)


@pytest.mark.parametrize(
    ("env", "port"),
    [(SLURM, "15007"), (OPEN_MPI, "7777"), (INTEL_MPI, "7777"), (TORCHRUN, "29400")],
    ids=["srun", "mpirun", "Intel's mpirun", "torchrun"],
)
def test_a_rank_has_torchruns_variables_under_every_launcher(env: Mapping[str, str], port: str) -> None:
    found = environment(env)

    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
    assert tuple(found[name] for name in names) == ("3", "4", "1", "2", "1", "n1", port)
    assert found["TORCHELASTIC_RUN_ID"] == env.get("TORCHELASTIC_RUN_ID", "none")  # which Lightning looks for
    assert env.items() <= found.items()  # and what it was started with


@pytest.mark.parametrize("env", [SLURM, OPEN_MPI, INTEL_MPI, TORCHRUN])
def test_what_starts_its_own_processes_finds_no_ranks(env: Mapping[str, str]) -> None:
    found = environment({**env, "HOME": "/home", "SLURM_JOB_ID": "7"}, processes="one")

    assert (found["NNODES"], found["NODE_RANK"], found["MASTER_ADDR"]) == ("2", "1", "n1")
    ours = ("DDP_RUN_DIR", "DDP_JOB", "DDP_RESTARTS", "DDP_STOP_WITHIN_S", "PYTHONPATH", "PYTHONUNBUFFERED")
    left = {"HOME", "SLURM_JOB_ID", *(name for name in env if name in ("SLURM_NODEID",))}
    assert set(found) == {"NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", *ours, *left}


def test_its_port_is_another_than_torchruns_and_none_that_linux_lends() -> None:
    ports = [own_port(port) for port in range(1, 65536)]

    assert all(15_000 <= port < 32_000 for port in ports)
    assert [port for port in range(1, 65536) if own_port(port) == port] == []


def test_data_that_another_job_had_is_not_this_ones() -> None:
    assert "DDP_DATA_DIR" not in environment({"DDP_DATA_DIR": "/old"})
    assert environment({}, data_dir=Path("data"))["DDP_DATA_DIR"] == str(Path("data").absolute())


def test_of_our_own_packages_only_kit_is_on_the_path_and_after_the_users() -> None:
    assert environment({"PYTHONPATH": f"{ROOT}:/mine:{ROOT}/"})["PYTHONPATH"] == f"/mine:{ON_PATH}"
    assert environment({})["PYTHONPATH"] == str(ON_PATH)
