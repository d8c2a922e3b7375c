"""--health-check in a training, and python -m trainer.health alone."""

from pathlib import Path

import pytest
import torch

from tests.conftest import Run, trainer_env
from tests.warm import Job, free_port
from trainer.outcome import read as read_outcome


def weights(folder: Path) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(folder / "run/model.pt", weights_only=True)
    return loaded


def test_a_checked_training_ends_with_the_weights_of_another(train: Run, tmp_path: Path) -> None:
    plain = train("--epochs", "1", ranks=2)
    assert plain.returncode == 0, plain.stderr
    before = weights(tmp_path)

    checked = train("--epochs", "1", "--health-check", "--no-resume", ranks=2)

    assert checked.returncode == 0, checked.stderr
    assert "health check passed in " in checked.stdout
    assert "health check" not in plain.stdout
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(tmp_path).items())


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_sick_machine_ends_with_8_and_one_sentence(ranks: int, train: Run, tmp_path: Path) -> None:
    done = train("--health-check", ranks=ranks, env={"DDP_NODE_XIDS": "13 79"})

    assert done.returncode == 8
    (sentence,) = done.stderr.splitlines()
    assert "failed its health check: its kernel logged NVIDIA's Xid 79 (the GPU has fallen off the bus);" in sentence
    outcome = read_outcome(tmp_path / "run")
    assert outcome is not None
    assert (outcome.exit_code, f"error: {outcome.reason}") == (8, sentence)


def test_missing_gpus_are_a_sick_machine_and_no_wrong_setting(train: Run) -> None:
    """Rather than a training on the CPU beside others on GPUs, or exit code 2."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = train("--health-check", env={"DDP_NODE_GPUS": "1"})
    assert done.returncode == 8, done.stderr


def test_the_check_alone_is_a_command_for_any_ranks(tmp_path: Path) -> None:
    places = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": str(free_port())}
    envs = [trainer_env(places | {"RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")]
    job = Job(["--device", "cpu"], tmp_path, envs, module="trainer.health")

    out, err = job.communicate()

    assert (job.returncode, err) == (0, "")
    assert out.startswith("health check passed in ")
    assert out.count("\n") == 1
