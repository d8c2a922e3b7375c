"""The whole way: command line -> SageMaker's SDK -> AWS (moto, over HTTP) -> AWS's own container toolkit -> our trainer
with two ranks -> the result, fetched and read.  Nothing in between is ours but the machine (agent.py, container.py).
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.job import Job
from launch.core.training.classifier import Classifier
from launch.sagemaker.backend import BACKEND
from launch.sagemaker.options import SageMakerOptions
from launch.sagemaker.runtime import Runtime
from launch.sagemaker.start import launch, prepare
from tests import needs
from tests.conftest import ROOT
from tests.launch.sagemaker.agent import Agent, playing
from trainer.config import TrainConfig
from trainer.metrics.log import read_records
from trainer.settings import flags

# Two ranks on two cores, a second an epoch.
SMALL = {"dataset": "digits", "model": "cnn", "batch_size": 64, "threads": 1, "probe_steps": 0, "device": "cpu"}
TYPE = "ml.g5.12xlarge"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with playing(tmp_path / "sagemaker", ranks=2) as agent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", agent.url)
        yield agent


def as_flags(settings: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def check_result(folder: Path, *, epochs: int) -> list[dict[str, Any]]:
    """A fetched result that two ranks made; returns its metrics."""
    records = read_records(folder / "metrics.jsonl")
    assert [record["epoch"] for record in records] == list(range(1, epochs + 1))
    assert {record["world_size"] for record in records} == {2}
    assert records[-1]["eval_images"] == 360
    weights = torch.load(folder / "model.pt", weights_only=True)
    assert sum(value.numel() for value in weights.values()) == 186_538
    return records


@pytest.mark.slow("launch.sagemaker trains on two ranks of mpirun through AWS's toolkit and fetches the result")
def test_the_command_trains_on_two_ranks_of_mpirun_and_fetches_the_result(agent: Agent, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "launch.sagemaker", "--instance-type", TYPE, "--job-name", "whole",
               "--epochs", "2", *as_flags(SMALL)]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""

    check_result(tmp_path / "runs/whole", epochs=2)
    for words in (
        "Training image download completed",
        "ddp on 2 CPUs",
        "epoch 2/2",
        "the training is done",
        "runs/whole",
    ):
        assert words in done.stdout
    told = agent.wait("whole")
    measured = {metric["MetricName"]: metric["Value"] for metric in told["FinalMetricDataList"]}
    assert measured["epoch"] == 2
    assert measured["eval_top1"] > 0.5
    assert "mpirun" in agent.log("whole")


class Launcher(threading.Thread):
    """A launch in this process, which looks more often than one that asks the real AWS."""

    def __init__(self, results: Path, **settings: Any) -> None:
        super().__init__()
        self.said: list[str] = []
        self.code: int | None = None
        where, train = flags.build({**BACKEND.defaults, **SMALL, **settings}, [SageMakerOptions, TrainConfig])
        assert isinstance(where, SageMakerOptions)
        assert isinstance(train, TrainConfig)
        self._job = Job(Classifier(train), where)
        clock = Clock(sleep=lambda seconds: time.sleep(min(seconds, 0.2)))
        self._runtime = Runtime(Aws("us-east-1"), clock, self.said.append, lambda: False, results)

    def run(self) -> None:
        self.code = launch(prepare(self._job, self._runtime), self._runtime).exit_code


def has_checkpoint(stored: Sequence[str]) -> bool:
    """Whether a whole one is stored: while it is written it has another name, and its checksum may come later."""
    return any(f"{uri}.sha256" in stored for uri in stored if uri.endswith(".pt"))


@pytest.mark.slow("an interrupted spot job of launch.sagemaker resumes from its checkpoint")
def test_a_spot_job_that_is_interrupted_resumes_from_its_checkpoint(agent: Agent, tmp_path: Path) -> None:
    launcher = Launcher(
        tmp_path / "runs",
        instance_type=TYPE,
        job_name="spot",
        distribution="torch_distributed",
        spot=True,
        epochs=15,  # more than it gets through before the service has its first checkpoint
        eval_every=5,
    )
    launcher.start()
    folder = f"s3://{agent.account.bucket}/jobs/spot/run"
    while not has_checkpoint(agent.account.under(folder)):
        assert launcher.is_alive(), launcher.said
        time.sleep(0.1)
    agent.interrupt("spot")
    launcher.join(timeout=150)
    assert launcher.code == 0, launcher.said

    records = check_result(tmp_path / "runs/spot", epochs=15)
    assert len({record["updates"] for record in records}) == 15
    assert any(line.startswith("resuming at epoch") for line in launcher.said)
    assert any("Interrupted" in line for line in launcher.said)
    assert "torchrun" in agent.log("spot")


@needs.sagemaker_hosts()
@pytest.mark.slow("two instances of launch.sagemaker train one model through AWS's toolkit")
def test_two_instances_train_one_model(agent: Agent, tmp_path: Path) -> None:
    agent.ranks = 1
    launcher = Launcher(
        tmp_path / "runs",
        instance_type="ml.g5.2xlarge",
        nodes=2,
        job_name="two",
        distribution="torch_distributed",
        epochs=2,
    )
    launcher.start()
    launcher.join(timeout=150)
    assert launcher.code == 0, launcher.said
    check_result(tmp_path / "runs/two", epochs=2)
    assert json.loads(agent.account.jobs["two"].request["HyperParameters"]["sagemaker_torch_distributed_enabled"])
    assert [line for line in launcher.said if line.startswith("[1] ")]
    assert [line for line in launcher.said if line.startswith("[2] ")]
