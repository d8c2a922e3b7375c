"""Who am I: from what torchrun, Open MPI and Slurm leave in the environment."""

import pytest

from trainer.distributed.ranks import Ranks, first_host, read_ranks
from trainer.errors import SettingsError

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29511",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_NODE_RANK": "1", "MASTER_ADDR": "algo-1",
}  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "4242", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_STEP_NODELIST": "gpu[03-04]",
}  # fmt: skip


def test_torchrun_names_everything() -> None:
    assert read_ranks(TORCHRUN) == Ranks(
        rank=5, world_size=8, local_rank=1, local_world_size=4, node_rank=1, nodes=2,
        master_addr="10.0.0.7", master_port=29511, source="torchrun",
    )  # fmt: skip


def test_a_restart_is_counted_where_the_ranks_meet_in_the_same_store() -> None:
    restarted = TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "2"}
    assert read_ranks(restarted | {"TORCHELASTIC_MAX_RESTARTS": "2"}).launcher_reports
    assert not read_ranks(restarted | {"TORCHELASTIC_MAX_RESTARTS": "3"}).launcher_reports
    assert read_ranks(restarted | {"TORCHELASTIC_USE_AGENT_STORE": "True"}).attempt == 2
    assert read_ranks(restarted | {"TORCHELASTIC_USE_AGENT_STORE": "False"}).attempt == 0


def test_rank_and_world_size_alone_mean_one_node() -> None:
    ranks = read_ranks({"RANK": "1", "WORLD_SIZE": "2"})

    assert (ranks.local_rank, ranks.local_world_size, ranks.node_rank, ranks.nodes) == (1, 2, 0, 1)
    assert (ranks.master_addr, ranks.master_port) == ("127.0.0.1", 29500)


def test_open_mpi_as_sagemaker_starts_it() -> None:
    assert read_ranks(OPEN_MPI) == Ranks(
        rank=5, world_size=8, local_rank=1, local_world_size=4, node_rank=1, nodes=2,
        master_addr="algo-1", master_port=29500, source="Open MPI",
    )  # fmt: skip


def test_open_mpi_on_one_host_is_one_node_for_every_rank() -> None:
    for rank in ("0", "3"):
        here = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_NODE_RANK": rank}
        ranks = read_ranks({"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_LOCAL_RANK": rank, **here})
        assert (ranks.node_rank, ranks.nodes, ranks.master_addr) == (0, 1, "127.0.0.1")


def test_slurm_started_with_srun() -> None:
    assert read_ranks(SLURM) == Ranks(
        rank=5, world_size=8, local_rank=1, local_world_size=4, node_rank=1, nodes=2,
        master_addr="gpu03", master_port=19242, source="Slurm",
    )  # fmt: skip


def test_an_sbatch_script_without_srun_is_a_single_process() -> None:
    shell = {"SLURM_JOB_ID": "4242", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"}

    assert read_ranks(shell) == read_ranks({}) == Ranks()


def test_slurm_with_fewer_tasks_on_the_last_node() -> None:
    uneven = SLURM | {"SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_TASKS_PER_NODE": "4,2", "SLURM_PROCID": "5"}
    alone = {"SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "8"}

    assert read_ranks(uneven).local_world_size == 2
    assert read_ranks(SLURM | alone).master_addr == "127.0.0.1"


@pytest.mark.parametrize(
    ("inner", "source"), [(TORCHRUN, "torchrun"), (OPEN_MPI, "Open MPI"), ({"SLURM_JOB_ID": "4243"}, "Slurm")]
)
def test_what_was_started_last_counts_inside_slurm(inner: dict[str, str], source: str) -> None:
    found = read_ranks(SLURM | inner)

    assert found.source == source
    assert found.master_port != read_ranks(SLURM).master_port  # and jobs that share a node have ports of their own


PMI = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4", "MASTER_ADDR": "n1"}
MV2 = {
    "MV2_COMM_WORLD_RANK": "5", "MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_RANK": "1",
    "MV2_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_ADDR": "n1",
}  # fmt: skip


@pytest.mark.parametrize(("env", "source"), [(PMI, "MPICH or Intel MPI"), (MV2, "MVAPICH"), (PMI | MV2, "MVAPICH")])
def test_other_mpis_say_ranks_as_open_mpi_does(env: dict[str, str], source: str) -> None:
    expected = Ranks(
        rank=5, world_size=8, local_rank=1, local_world_size=4, node_rank=1, nodes=2, master_addr="n1", source=source
    )

    assert read_ranks(env) == expected
    assert read_ranks(SLURM | {"SLURM_PROCID": "1"} | env) == expected  # mpirun starts a task of Slurm's on each node
    assert read_ranks(env | OPEN_MPI).source == "Open MPI"
    assert read_ranks(env | TORCHRUN).source == "torchrun"


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "MPI_LOCALRANKID"),
        ({name: value for name, value in PMI.items() if name != "MASTER_ADDR"}, "MASTER_ADDR"),
        ({"PMIX_RANK": "1"}, "PMIx started this rank"),
        ({"RANK": "0"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "RANK"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK='x'"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK='-1'"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 does not fit in a world of 2"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "a world of 0 ranks is empty"),
        (TORCHRUN | {"LOCAL_RANK": "4"}, "local rank 4 does not fit among 4"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "9"}, "9 ranks on this node are more than the 8"),
        (TORCHRUN | {"GROUP_RANK": "2"}, "node 2 does not fit among 2 nodes"),
        ({name: value for name, value in OPEN_MPI.items() if name != "MASTER_ADDR"}, "MASTER_ADDR"),
        (SLURM | {"SLURM_STEP_NODELIST": ""}, "SLURM_NODELIST=''"),
    ],
)
def test_a_contradiction_gets_a_sentence(env: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        read_ranks(env)


@pytest.mark.parametrize(
    ("node_list", "host"),
    [
        ("gpu03", "gpu03"),
        ("gpu[03-05,9],login", "gpu03"),
        ("rack[1-2]-node[08-09]-ib,x", "rack1-node08-ib"),
        ("queue1-dy-g5-[1-2]", "queue1-dy-g5-1"),
    ],
)
def test_the_first_host_of_a_slurm_list(node_list: str, host: str) -> None:
    assert first_host(node_list) == host
