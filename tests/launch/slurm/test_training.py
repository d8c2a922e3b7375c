"""Whole trainings in a real Slurm: two ranks on two nodes, asked to end half-way, as before a time limit."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import needs
from tests.conftest import start_ranks
from tests.launch.slurm.cluster import Cluster
from tests.launch.slurm.user import User
from tests.listening import of
from tests.processes import processes_with

pytestmark = needs.slurm()

# On a quick machine an epoch takes a tenth of a second, and Slurm's signal must come before the last.
EPOCHS = 60
TRAINING = ("--model", "cnn", "--dataset", "digits", "--image-size", "8", "--epochs", str(EPOCHS),
            "--batch-size", "128", "--precision", "fp32", "--threads", "1", "--no-plot", "--probe-steps", "0",
            "--device", "cpu", "--log-every", "1")  # fmt: skip

# What a record says of the training, and not of the machine.
LASTING = ("epoch", "updates", "learning_rate", "train_loss", "train_top1", "eval_loss", "eval_top1", "eval_images",
           "world_size")  # fmt: skip


def records(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in LASTING} for line in lines]


def open_to_others(job: str) -> set[tuple[str, int]]:
    """What the job's processes listen on beyond loopback: by program, and which port."""
    found = set[tuple[str, int]]()
    for pid in processes_with(f"SLURM_JOB_ID={job}"):
        with suppress(OSError):  # it has just ended
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            found |= {(name, one.port) for one in of([pid]) if not one.is_loopback}
    return found


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the same training, as two ranks without Slurm, all at once."""
    folder = tmp_path_factory.mktemp("unbroken")
    ranks = start_ranks(folder, *TRAINING, ranks=2)
    _, err = ranks.communicate(timeout=120)
    assert ranks.returncode == 0, err
    return folder / "run"


@pytest.mark.slow("a training that a real Slurm interrupts ends with the weights of one that was not interrupted")
def test_a_job_that_is_interrupted_saves_and_resumes_to_the_same_weights(
    user: User, cluster: Cluster, unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ("--job-name", "job", "--nodes", "2", "--time", "20", "--cpus-per-task", "2", "--detach")
    assert user.run(*job, *TRAINING, "--cache-dir", str(tmp_path / "cache")) == 0
    user.wait_for(lambda: " updates" in user.log, within_s=240)  # the ranks have met
    number = cluster.call("squeue", "-h", "-o", "%i").strip()
    # Slurm's srun waits for its tasks there, and with several nodes rank 0, or torchrun's agent, for the others.
    others = {port for program, port in open_to_others(number) if program != "srun"}
    assert others <= {15_000 + int(number) % 17_000}
    user.wait_for(lambda: "[METRIC]" in user.log, within_s=240)

    # Slurm's own signal, as ahead of a time limit.
    cluster.call("scancel", "--batch", "--signal=USR1", number)

    assert user.run("attach", "job") == 0
    assert user.ends == [(75, "requeue"), (0, "done")]
    assert (user.outcome.state, user.outcome.exit_code) == ("done", 0)
    assert records(user.folder) == records(unbroken)
    weights, expected = (torch.load(folder / "model.pt") for folder in (user.folder, unbroken))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    capsys.readouterr()
    assert user.run("status", "job") == 0
    assert f"training  epoch {EPOCHS}/{EPOCHS}" in capsys.readouterr().out
