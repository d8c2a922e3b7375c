"""Whole jobs: plan -> SageMaker's SDK -> AWS (moto, over HTTP) -> AWS's own container toolkit -> our trainer -> the
result, fetched and read.  Nothing in between is ours but the machine (agent.py).

On two instances under mpirun, as a command: tests/launch/rehearse/sagemaker.
"""

import threading
import time
from pathlib import Path

import pytest
import torch

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.core.job import Job
from launch.core.training.classifier import Classifier
from launch.rehearse.aws.batch.moto_patches import make_queue
from launch.sagemaker.backend import BACKEND
from launch.sagemaker.follow import follow
from launch.sagemaker.options import SageMakerOptions
from launch.sagemaker.runtime import Runtime
from launch.sagemaker.start import launch, prepare
from launch.sagemaker.training_jobs import newest
from tests import needs
from tests.launch.sagemaker.agent import playing
from trainer.config import TrainConfig
from trainer.settings import flags

# A second an epoch.
SETTINGS = {"dataset": "digits", "model": "cnn", "batch_size": 64, "threads": 1, "probe_steps": 0, "device": "cpu",
            "instance_type": "ml.g5.2xlarge", "nodes": 1, "epochs": 4, "distribution": "torch_distributed"}  # fmt: skip


@needs.sagemaker_hosts()
@pytest.mark.timeout(300)
@pytest.mark.slow("a job in a queue whose machine dies ends with the weights of one that ran through")
def test_an_attempt_that_is_lost_is_resumed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, on the CPU; nobody is there but `attach`, which only looks."""
    said = list[str]()
    with playing(tmp_path / "sagemaker", ranks=1) as agent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", agent.url)
        make_queue(agent.account.rules, "aws-ddp-toolkit-demo", 1, "us-east-1", agent.account.id)

        def kill_once() -> None:
            """As soon as the job has saved: it trains for seconds only."""
            while not any("/checkpoints/epoch-" in key for key in list(agent.account.objects())):
                time.sleep(0.05)
            (run,) = agent.runs.values()
            run.end_abruptly("died")

        threading.Thread(target=kill_once, daemon=True).start()
        clock = Clock(sleep=lambda seconds: time.sleep(min(seconds, 0.2)))  # sooner than one that asks the real AWS
        runtime = Runtime(Aws("us-east-1"), clock, said.append, lambda: False, tmp_path / "runs")
        assert launch(prepare(_job("broken", queue="demo"), runtime), runtime) is None
        follow(newest(runtime.aws, "broken", "attach", runtime.clock.utc()), runtime, fetch=True)
        attempts = list(agent.account.jobs)
        launch(prepare(_job("whole"), runtime), runtime)

    assert len(attempts) == 2, said
    assert [line for line in said if line.startswith("resuming ")], said
    broken, whole = (torch.load(tmp_path / f"runs/{name}/model.pt", weights_only=True) for name in ("broken", "whole"))
    assert all(torch.equal(broken[name], whole[name]) for name in whole)


def _job(name: str, **more: object) -> Job[SageMakerOptions]:
    settings = {**BACKEND.defaults, **SETTINGS, "job_name": name, **more}
    where, train = flags.build(settings, [SageMakerOptions, TrainConfig])
    assert isinstance(where, SageMakerOptions)
    assert isinstance(train, TrainConfig)
    return Job(Classifier(train), where)
