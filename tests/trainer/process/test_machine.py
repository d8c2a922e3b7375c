"""What a machine may lack."""

import os

import pytest
import torch

from trainer.config import TrainConfig
from trainer.distributed.ranks import Ranks
from trainer.errors import SettingsError
from trainer.health import nvidia
from trainer.process.machine import pick_device, set_up, threads_of


@pytest.mark.parametrize(
    ("asked", "ranks", "threads"),
    [
        ("2", 1, 2),
        ("1", 1, 1),  # a rank alone: its user's, as torchrun leaves it alone
        ("1", 2, 4),  # of torchrun, which sets it unasked
        ("", 2, 4),
        ("4,2", 1, 8),  # of nested loops, which torch has not
        ("1024", 1, 8),  # they would do nothing but wait for each other
    ],
)
def test_threads_are_those_of_omp_num_threads_or_the_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, asked: str, ranks: int, threads: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert threads_of({"OMP_NUM_THREADS": asked}, ranks) == threads


def test_so_many_threads_that_none_gets_on_are_refused() -> None:
    config = TrainConfig(threads=1024)
    with pytest.raises(SettingsError, match=r"--threads 1024: at most \d+ are useful on \d+ cores; drop it"):
        set_up(config, torch.device("cpu"), Ranks())


@pytest.mark.parametrize(
    ("cuda", "answer", "named"),
    [
        ("13.0", "<driver_version>570.86.15</driver_version>", "driver 570.86.15 does not support CUDA 13.0"),
        ("13.0", None, "nvidia-smi finds no driver"),
        (None, "<driver_version>570.86.15</driver_version>", "torch 2.10.0 is built for the CPU"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_explained_by_driver_and_cuda(
    cuda: str | None, answer: str | None, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(nvidia, "query", lambda: answer)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.raises(SettingsError, match=named):
        pick_device("cuda", Ranks())


def test_a_hidden_gpu_is_not_blamed_on_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on an H100: its driver did serve torch's CUDA."""
    monkeypatch.setattr(nvidia, "query", lambda: "<driver_version>580.159.04</driver_version>")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SettingsError, match="CUDA_VISIBLE_DEVICES='' hides the GPUs; unset it, or take --device cpu"):
        pick_device("cuda", Ranks())


@pytest.mark.parametrize(
    ("source", "on_node", "index"), [("Slurm", "4", 0), ("Slurm", "1", None), ("torchrun", "4", None)]
)
def test_a_task_that_slurm_lets_see_one_gpu_of_several_takes_it(
    source: str, on_node: str, index: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM_GPUS_ON_NODE counts the step's GPUs, as a real Slurm 22.05 with --gpu-bind=single:1 does."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", on_node)
    ranks = Ranks(rank=2, local_rank=2, world_size=4, local_world_size=4, source=source)

    if index is None:
        with pytest.raises(SettingsError, match="4 ranks on this node but only 1 GPU"):
            pick_device("auto", ranks)
    else:
        assert pick_device("auto", ranks) == torch.device("cuda", index)
