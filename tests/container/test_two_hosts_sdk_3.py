"""A SageMaker job on two hosts as SDK 3's ModelTrainer asks for it: its own drivers, real ssh, mpirun and torchrun.

The request is the ModelTrainer's, and so are the drivers that it uploads; hosts.py says what of a host is real.  The
request's entrypoint replaces that of the image, so the start script of AWS's images does not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from launch.rehearse.nodes.sagemaker.container import ContainerSpec, _write_files
from launch.rehearse.nodes.sagemaker.network import why_no_network
from launch.sagemaker.bundle import make_bundle
from tests import needs
from tests.container.engine import IMAGE, Engine
from tests.container.hosts import HOSTS, PROGRAMS, Job, make_host_base, started
from tests.launch.sagemaker.test_container import QUICK
from tests.launch.sagemaker.test_model_trainer import write
from tests.launch.sagemaker.through_sdk_3 import requests_of_sdk_3
from trainer.metrics.log import read_records

pytestmark = [
    needs.containers(),
    needs.programs(*PROGRAMS, packages="openssh-server openmpi-bin jq gcc libc6-dev"),
    needs.sagemaker_sdk_3(),
    pytest.mark.slow("SDK 3's drivers train on two hosts with real ssh, by mpirun and by torchrun"),
]
SETTINGS = {**QUICK, "epochs": 1, "batch_size": 32, "nodes": 2, "instance_type": "ml.c5.2xlarge", "allow_cpu": True}
DISTRIBUTIONS = ("pytorchddp", "torch_distributed")


@pytest.fixture(scope="module")
def jobs(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Job]]:
    """All at once, as each waits much of its time: a host of the MPI driver looks every 30 s whether it is over."""
    if why := why_no_network():
        pytest.skip(why)
    base = make_host_base(engine)
    engine.build(f"{IMAGE}-hosts", "sagemaker", base)
    folder = tmp_path_factory.mktemp("hosts")
    with ExitStack() as stack:
        made = dict[str, Job]()
        jobs = [{**SETTINGS, "distribution": distribution} for distribution in DISTRIBUTIONS]
        requests = requests_of_sdk_3("two-hosts-of-sdk-3", jobs, tmp_path_factory)
        for distribution, asked in zip(DISTRIBUTIONS, requests, strict=True):
            place = folder / distribution
            place.mkdir()
            made[distribution] = stack.enter_context(begun(engine, f"{IMAGE}-hosts", place, asked))
        for job in made.values():
            job.wait(250)
        yield made


def begun(engine: Engine, image: str, folder: Path, asked: list[dict[str, Any]]) -> Any:
    """Starts the containers that the requests ask for."""
    *uploads, creation = asked
    job = creation["params"]
    channels = {channel["ChannelName"]: channel["DataSource"]["S3DataSource"] for channel in job["InputDataConfig"]}

    def fill(base: Path, host: str) -> None:
        spec = ContainerSpec(
            base, job["HyperParameters"], host, HOSTS, job["ResourceConfig"]["InstanceType"], tuple(channels)
        )
        _write_files(spec, "eth0")
        for upload in uploads:
            uri = f"s3://{upload['params']['Bucket']}/{upload['params']['Key']}"
            name = uri.removeprefix(f"{channels['sm_drivers']['S3Uri']}/")
            write(base / "input/data/sm_drivers" / name, upload["params"]["Body"])
        source = base / "input/data/code/sourcedir.tar.gz"
        source.parent.mkdir(parents=True)
        source.write_bytes(make_bundle("torch\n").content)

    program = job["AlgorithmSpecification"]
    env = {**job.get("Environment", {}), "PIP_NO_INDEX": "1"}
    options = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    entry = ("--entrypoint", json.dumps(program["ContainerEntrypoint"]))
    return started(engine, folder, fill, (*options, *entry, image, *program["ContainerArguments"]))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_two_hosts_train_together(jobs: dict[str, Job], distribution: str) -> None:
    job = jobs[distribution]

    assert job.wait(1) == [0, 0], job.log
    (record,) = read_records(job.bases[0] / "model" / "metrics.jsonl")
    assert record["world_size"] == 2
    assert [any(base.joinpath("checkpoints").rglob("*.pt")) for base in job.bases] == [True, False]


def test_mpirun_is_told_of_all_ranks_and_reaches_the_other_host(jobs: dict[str, Job]) -> None:
    """The driver asks for the ranks of one host, and the plan for those of all."""
    job = jobs["pytorchddp"]

    assert "Master can connect to all worker nodes." in job.log
    command = re.search(r"Executing command: mpirun .*", job.log)
    assert command is not None
    assert "--host algo-1,algo-2 -np 1 " in command[0]
    assert command[0].rindex(" -np 2 ") > command[0].index(" -np 1 ")
