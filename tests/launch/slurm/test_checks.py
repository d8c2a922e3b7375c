"""What the partitions of a cluster cannot provide, and what the rest of the toolkit knows of launch.slurm."""

from dataclasses import replace
from typing import Any

import pytest

from launch.core.backend import Demand, Place, find
from launch.slurm.checks import against_cluster
from launch.slurm.listing import Partition
from launch.slurm.options import SlurmOptions
from trainer.errors import SettingsError

# ---- checks


MAIN = Partition("main", is_default=True, is_up=True, limit_s=3600, nodes=4, cpus=64, memory_mb=256_000,
                 gpus=(("a100", 4),))  # fmt: skip
FAT = replace(MAIN, name="fat", is_default=False, limit_s=None, nodes=1, memory_mb=2_000_000, gpus=())


def flags(*partitions: Partition, cpus: int | None = None, **options: Any) -> list[str]:
    """The first flag that each sentence names: what has to change."""
    errors = against_cluster(SlurmOptions(**{"time": "30", **options}), cpus, partitions)
    words = [str(error).replace("the processes of a node", "--cpus-per-task").split() for error in errors]
    return [next((word.rstrip(",") for word in sentence if word.startswith("--")), "") for sentence in words]


def test_each_need_is_compared_with_the_partition() -> None:
    cases = [
        ({"gpus_per_node": 4, "nodes": 4, "cpus": 64, "mem": "250G"}, []),
        ({"time": "61"}, ["--time"]),
        ({"gpus_per_node": 5}, ["--gpus-per-node"]),
        ({"gpus_per_node": 1, "gpu_type": "h100"}, ["--gpus-per-node"]),
        ({"cpus": 65}, ["--cpus-per-task"]),
        ({"mem": "251G"}, ["--mem"]),
        ({"mem": "lots"}, []),  # only Slurm can judge it
        ({"nodes": 5}, ["--nodes"]),
        ({"nodes": 5, "gpus_per_node": 5, "cpus": 65, "time": "61"}, ["--time", "--gpus-per-node"]),
        ({"partition": "fta"}, [""]),
    ]
    for options, unmet in cases:
        assert flags(MAIN, FAT, **options) == unmet


def test_of_several_partitions_one_must_be_enough() -> None:
    assert flags(MAIN, FAT, partition="main,fat", time="61", mem="1000G", nodes=5) == []
    assert flags(MAIN, FAT, partition="fat", gpus_per_node=1) == ["--gpus-per-node"]
    assert flags(MAIN, FAT, partition="main,fat", nodes=5, gpus_per_node=1) == ["--nodes"]


def test_a_partition_that_is_down_and_no_default_are_refused() -> None:
    assert flags(replace(MAIN, is_up=False)) == ["--partition"]
    assert flags(FAT) == ["--partition"]


# ---- backend


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        (Demand({"nodes": 2}, "ddp", None), Place({"nodes": 2}, None)),
        (Demand({"nodes": "2"}, "ddp", 8), Place({"nodes": "2", "gpus_per_node": 4}, 8)),
        (Demand({}, "ddp", 4), Place({"gpus_per_node": 4}, 4)),
        (Demand({"nodes": 2}, "ddp", 4, on_cpu=True), Place({"nodes": 2, "nproc_per_node": 2}, 4)),
    ],
)
def test_gpus_are_divided_among_the_nodes(request_: Demand, place: Place) -> None:
    assert find("slurm").place(request_) == place


def test_gpus_that_do_not_divide_are_refused() -> None:
    with pytest.raises(SettingsError, match="3 do not divide among 2 nodes"):
        find("slurm").place(Demand({"nodes": 2}, "ddp", 3))


def test_a_job_outlives_the_process_that_follows_it() -> None:
    backend = find("slurm")

    assert (backend.marks_children, backend.shares_folders) == (False, True)
