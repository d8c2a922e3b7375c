"""A SageMaker job on two hosts, with AWS's real toolkit, ssh and mpirun: hosts.py lists what is real and what is not.

The image is our Dockerfile's, built on a base as AWS's images are.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from launch.rehearse.nodes.sagemaker.network import why_no_network
from launch.sagemaker.bundle import make_bundle
from tests import needs
from tests.container.engine import IMAGE, Engine
from tests.container.hosts import PROGRAMS, Job, make_host_base, running
from tests.launch.sagemaker.test_container import DISTRIBUTIONS, QUICK
from trainer.metrics.log import read_records

pytestmark = [
    needs.containers(),
    needs.programs(*PROGRAMS, packages="openssh-server openmpi-bin jq gcc libc6-dev"),
    needs.sagemaker_toolkit(),
    pytest.mark.slow("AWS's real toolkit trains on two hosts with real ssh and mpirun, in our image"),
]
# tests/launch/sagemaker/test_container.py has torchrun.
JOBS = ("ours",)


@pytest.fixture(scope="module")
def jobs(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Job]]:
    """The end of mpirun alone takes AWS's toolkit 30 s."""
    if why := why_no_network():
        pytest.skip(why)
    base = make_host_base(engine)
    engine.build(f"{IMAGE}-hosts", "sagemaker", base)
    names = {"ours": f"{IMAGE}-hosts"}
    folder = tmp_path_factory.mktemp("hosts")
    source = unpacked(folder / "source")
    with ExitStack() as stack:
        started = dict[str, Job]()
        for image in JOBS:
            settings = {**QUICK, "epochs": 1, "batch_size": 32, **DISTRIBUTIONS["pytorchddp"],
                        "sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/code"}  # fmt: skip
            place = folder / image
            place.mkdir()
            started[image] = stack.enter_context(running(engine, names[image], place, settings, source))
        for job in started.values():
            job.wait(250)
        yield started


def unpacked(folder: Path) -> Path:
    """The job's source, as AWS's toolkit unpacks it."""
    with tarfile.open(fileobj=io.BytesIO(make_bundle("").content)) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("image", JOBS)
def test_two_hosts_train_together(jobs: dict[str, Job], image: str) -> None:
    job = jobs[image]

    assert job.wait(1) == [0, 0], job.log
    (record,) = read_records(job.bases[0] / "model" / "metrics.jsonl")
    assert record["world_size"] == 2
    # SageMaker copies this folder of every host to the same place in S3: only the first may write to it.
    assert [any(base.joinpath("checkpoints").rglob("*.pt")) for base in job.bases] == [True, False]


@pytest.mark.parametrize("image", JOBS)
def test_awss_own_connection_is_what_mpirun_waits_for(jobs: dict[str, Job], image: str) -> None:
    """B1: the toolkit looks for the key below $HOME, and waits an hour for hosts that it cannot reach."""
    job = jobs[image]

    assert "Can connect to host algo-2" in job.log
    assert "Worker algo-2 available for communication" in job.log
    assert "MPI training job status file found. Exit gracefully" in job.log


@pytest.mark.parametrize("image", JOBS)
def test_the_processes_have_the_host_names_that_sagemaker_means(jobs: dict[str, Job], image: str) -> None:
    """B2: the start script compiles and preloads in /; without it the host is called aws, which has no address."""
    job = jobs[image]

    assert "libchangehostname.so' from LD_PRELOAD cannot be preloaded" not in job.log
    assert "changehostname.c: No such file" not in job.log


def test_our_image_has_roots_home_and_the_folder_of_the_start_script(jobs: dict[str, Job], engine: Engine) -> None:
    config = engine.inspect(f"{IMAGE}-hosts")["config"]

    assert "HOME=/root" in config["Env"]
    assert config["WorkingDir"] == "/"
    assert json.dumps(config["Entrypoint"]) == '["/opt/ddp/entry.sh"]'
