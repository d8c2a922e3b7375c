"""A SageMaker job on two hosts, with AWS's real toolkit, ssh and mpirun: hosts.py lists what is real and what is not.

The image is our Dockerfile's, built on a base as AWS's images are.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from launch.rehearse.nodes.sagemaker.network import why_no_network
from launch.sagemaker.bundle import make_bundle
from tests import needs
from tests.container.engine import IMAGE, Engine
from tests.container.hosts import PROGRAMS, make_host_base, running
from tests.launch.sagemaker.test_container import DISTRIBUTIONS, QUICK
from trainer.metrics.log import read_records

pytestmark = [
    needs.containers(),
    needs.programs(*PROGRAMS, packages="openssh-server openmpi-bin jq gcc libc6-dev"),
    needs.sagemaker_toolkit(),
    pytest.mark.slow("AWS's real toolkit trains on two hosts with real ssh and mpirun, in our image"),
]


def test_two_hosts_train_together(engine: Engine, tmp_path: Path) -> None:
    """The end of mpirun alone takes AWS's toolkit 30 s."""
    if why := why_no_network():
        pytest.skip(why)
    image = f"{IMAGE}-hosts"
    engine.build(image, "sagemaker", make_host_base(engine))
    settings = {**QUICK, "epochs": 1, "batch_size": 32, **DISTRIBUTIONS["pytorchddp"],
                "sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/code"}  # fmt: skip
    # The job's source, as AWS's toolkit unpacks it.
    with tarfile.open(fileobj=io.BytesIO(make_bundle("").content)) as tar:
        tar.extractall(tmp_path / "source", filter="data")
    (tmp_path / "job").mkdir()

    with running(engine, image, tmp_path / "job", settings, tmp_path / "source") as job:
        assert job.wait(250) == [0, 0], job.log

    (record,) = read_records(job.bases[0] / "model" / "metrics.jsonl")
    assert record["world_size"] == 2
    # SageMaker copies this folder of every host to the same place in S3: only the first may write to it.
    assert [any(base.joinpath("checkpoints").rglob("*.pt")) for base in job.bases] == [True, False]
    # The toolkit looks for the key below $HOME, and waits an hour for hosts that it cannot reach.
    assert "Worker algo-2 available for communication" in job.log
    assert "MPI training job status file found. Exit gracefully" in job.log
    # The start script compiles and preloads in /; without it the host is called aws, which has no address.
    assert "libchangehostname.so' from LD_PRELOAD cannot be preloaded" not in job.log
    assert "changehostname.c: No such file" not in job.log
