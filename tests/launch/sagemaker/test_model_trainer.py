"""SDK 3's own drivers start the trainer: what its ModelTrainer asks for, run as a container would run it.

Of the container only the machine is replaced: namespaces with their own /opt, /etc/hosts and network, and an nvidia-smi
that shows two GPUs.  The script, the drivers, torchrun and mpirun are the real ones.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from launch.rehearse.nodes.ec2.node import write_program
from launch.rehearse.nodes.sagemaker.container import NVIDIA_SMI
from launch.sagemaker.bundle import make_bundle
from tests import needs
from tests.launch.sagemaker.known import NAME
from tests.launch.sagemaker.through_sdk_3 import requests_of_sdk_3
from trainer.contract import SAGEMAKER_FAILURE_PATTERN

pytestmark = [needs.sagemaker_sdk_3(), needs.root(), needs.programs("unshare", "ip", packages="util-linux iproute2")]

SMALL = {"instance_type": "ml.c5.2xlarge", "allow_cpu": True, "model": "cnn", "dataset": "digits", "epochs": 2,
         "batch_size": 128, "threads": 1, "probe_steps": 0, "plot": False}  # fmt: skip
WITHOUT_WEIGHTS = {"data": "weights=s3://bucket/w", "init_from": "/opt/ml/input/data/weights/model.pt"}
DISTRIBUTIONS = ("pytorchddp", "torch_distributed")
JOBS = {
    (distribution, fails): {**SMALL, "distribution": distribution, **(WITHOUT_WEIGHTS if fails else {})}
    for distribution in DISTRIBUTIONS
    for fails in (False, True)
}
RANKS = 2
BOX = """
set -eu
base=$1; shift
ip link set lo up
mount -t tmpfs tmpfs /opt
mkdir /opt/ml
mount --rbind "$base" /opt/ml
mount --bind "$base/tmp/hosts" /etc/hosts
mount --bind "$base/tmp/environment" /etc/environment
hostname algo-1
cd /
exec "$@"
"""


Requests = Mapping[tuple[str, bool], Sequence[Mapping[str, Any]]]


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Requests:
    """What the ModelTrainer asks for, by how the ranks are started and whether the training fails."""
    made = requests_of_sdk_3("jobs-of-sdk-3", list(JOBS.values()), tmp_path_factory)
    return dict(zip(JOBS, made, strict=True))


@dataclass(frozen=True)
class Ended:
    code: int
    log: str
    base: Path


def run(base: Path, requests: Sequence[Mapping[str, Any]]) -> Ended:
    """Runs the container of a job of one instance, which `requests` of SDK 3 make, to its end."""
    *uploads, creation = requests
    asked = creation["params"]
    fill(base, uploads, asked)
    programs = asked["AlgorithmSpecification"]
    env = {
        "PATH": f"/opt/ml/tmp/bin:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/opt/ml/tmp",
        "TMPDIR": "/opt/ml/tmp",
        "STAND_IN_GPUS": str(RANKS),
        "TRAINING_JOB_NAME": NAME,
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **asked.get("Environment", {}),
    }
    words = [*programs["ContainerEntrypoint"], *programs["ContainerArguments"]]
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
         "bash", "-c", BOX, "bash", str(base), *words],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=200,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, base)


def fill(base: Path, uploads: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> None:
    """/opt/ml as SageMaker fills it, and what the image has."""
    channels = {channel["ChannelName"]: channel["DataSource"] for channel in asked["InputDataConfig"]}
    prefix = channels["sm_drivers"]["S3DataSource"]["S3Uri"]
    for upload in uploads:
        uri = f"s3://{upload['params']['Bucket']}/{upload['params']['Key']}"
        write(base / "input/data/sm_drivers" / uri.removeprefix(f"{prefix}/"), upload["params"]["Body"])
    source = base / "input/data/code/sourcedir.tar.gz"
    source.parent.mkdir(parents=True)
    source.write_bytes(make_bundle("torch\n").content)
    resources = {
        "current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo",
        "current_instance_type": asked["ResourceConfig"]["InstanceType"],
    }  # fmt: skip
    inputs = {name: {"TrainingInputMode": "File"} for name in channels}
    for name, content in (
        ("resourceconfig", resources),
        ("inputdataconfig", inputs),
        ("hyperparameters", asked["HyperParameters"]),
    ):
        write(base / f"input/config/{name}.json", json.dumps(content))
    write(base / "tmp/hosts", "127.0.0.1 localhost algo-1\n::1 localhost\n")
    write(base / "tmp/environment", "")
    write_program(base / "tmp/bin/nvidia-smi", NVIDIA_SMI)
    for folder in ("model", "output/data", "checkpoints"):
        (base / folder).mkdir(parents=True)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.slow("SDK 3's drivers train on every GPU, with mpirun and with torchrun")
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_drivers_of_sdk_3_train_on_every_gpu_and_leave_the_result(
    distribution: str, requests: Requests, tmp_path: Path
) -> None:
    ended = run(tmp_path / "ml", requests[distribution, False])
    assert ended.code == 0, ended.log
    assert re.search(rf"(-np |--nproc_per_node=){RANKS} ", ended.log)
    assert torch.load(ended.base / "model/model.pt", weights_only=True)
    records = [json.loads(line) for line in (ended.base / "model/metrics.jsonl").read_text().splitlines()]
    assert records[-1]["epoch"] == 2


@pytest.mark.slow("a training that fails below SDK 3's drivers says why in its log")
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_why_it_failed_is_in_the_log(distribution: str, requests: Requests, tmp_path: Path) -> None:
    ended = run(tmp_path / "ml", requests[distribution, True])
    assert ended.code == {"pytorchddp": 2, "torch_distributed": 1}[distribution]
    found = SAGEMAKER_FAILURE_PATTERN.search(ended.log)
    assert found is not None
    assert found["code"] == "2"
    assert found["sentence"].startswith("--init-from /opt/ml/input/data/weights/model.pt: No such file")
    # FailureReason does not have it: SDK 3's drivers write how their command ended.
    assert SAGEMAKER_FAILURE_PATTERN.search((ended.base / "output/failure").read_text()) is None
