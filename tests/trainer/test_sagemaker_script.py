"""A script of the user's own in a SageMaker container: its folders, and one process on each host."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from trainer import sagemaker
from trainer.distributed.ranks import Ranks, read_ranks
from trainer.script.config import ScriptConfig, parse

# The second of two hosts with four GPUs each, by the two ways in which AWS's toolkit starts ranks.
TORCHRUN = {"RANK": "4", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4",
            "MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}  # fmt: skip
MPIRUN = {"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
          "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_ADDR": "algo-1"}  # fmt: skip


class Runs(list[tuple[ScriptConfig, Ranks]]):
    """What trainer.script was told, and its place."""

    def main(self, argv: Sequence[str], env: Mapping[str, str]) -> int:
        self.append((parse(argv), read_ranks(env)))
        return 0


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr("trainer.script.__main__.main", runs.main)
    return runs


def start(tmp_path: Path, env: Mapping[str, str], *flags: str) -> int:
    words = ["--source", "/s", "--digest", "0" * 64, "--work", "/w", *flags, "--", "train.py"]
    places = {"SM_MODEL_DIR": str(tmp_path / "model"), "SM_CHANNEL_SCRIPT": str(tmp_path / "input/data/script")}
    return sagemaker.main(["--script", ",".join(words)], {**places, **env})


@pytest.mark.parametrize("env", [TORCHRUN, MPIRUN], ids=["torchrun", "mpirun"])
def test_one_process_of_a_host_with_several_gpus_is_the_only_one_there(
    tmp_path: Path, runs: Runs, env: Mapping[str, str]
) -> None:
    assert start(tmp_path, env, "--processes", "one") == 0

    ((config, ranks),) = runs
    assert config.processes == "one"
    assert (ranks.rank, ranks.world_size) == (ranks.node_rank, ranks.nodes) == (1, 2)
    assert (ranks.local_rank, ranks.local_world_size, ranks.master_addr) == (0, 1, "algo-1")


def test_the_other_processes_of_its_host_end_at_once(tmp_path: Path, runs: Runs) -> None:
    assert start(tmp_path, TORCHRUN | {"RANK": "5", "LOCAL_RANK": "1"}, "--processes", "one") == 0
    assert runs == []


@pytest.mark.parametrize(
    ("channels", "folder"),
    [
        ([], None),
        (["data"], "input/data/data"),
        (["data", "weights"], "input/data/data"),
        (["train", "val"], "input/data"),
        (["training"], "input/data"),  # as SageMaker's own examples call it
        (["images"], "input/data"),
    ],
)
def test_a_script_is_told_where_its_channels_are(
    tmp_path: Path, runs: Runs, channels: Sequence[str], folder: str | None
) -> None:
    places = {f"SM_CHANNEL_{name.upper()}": str(tmp_path / "input/data" / name) for name in channels}

    assert start(tmp_path, TORCHRUN | places) == 0

    ((config, ranks),) = runs
    assert config.data_dir == (None if folder is None else tmp_path / folder)
    assert ranks.rank == 4
