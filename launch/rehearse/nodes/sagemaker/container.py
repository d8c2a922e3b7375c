"""A SageMaker container on this machine: AWS's own training toolkit on CPU ranks, without Docker or an account.

    spec = ContainerSpec(base, hyperparameters)          # as in CreateTrainingJob: text for text
    with Container(spec, on_line=print) as container:
        code = container.wait(120)                  # or container.stop(), as SageMaker does
        print(container.failure)                    # what becomes FailureReason, or ""

One host needs only the toolkit.  Several need root: `with network(folder, names) as net`, and a
Container(..., net) for each name, which then has its own network, host name and /opt/ml.  `base` is the container's
/opt/ml: the caller fills base/input/data/CHANNEL and base/checkpoints before, and takes base/model, base/output and
base/checkpoints after.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from launch.core import shell
from launch.core.shell import ChildProcess
from launch.core.signals import kill_marked
from launch.rehearse.nodes.ec2.node import write_program
from launch.rehearse.nodes.network import fill_disk
from launch.rehearse.nodes.sagemaker.network import HostNetwork

TOOLKIT = Path(__file__).with_name("toolkit.py")
KEY = "ASIATESTTESTTESTTEST"  # of the role; pragma: allowlist secret
TOKEN = secrets.token_urlsafe(32)  # of its session; secret from this machine's other users
ENDED_S = 10.0  # for killed processes to end

# Becomes the container if it has no separate host.
POWER_ON = 'cd "$1" && shift && echo ready && read -r _ && exec "$@" 2>&1'

# In AWS's image; the toolkit starts one rank for each GPU that it lists.  -q -x is for --health-check.
NVIDIA_SMI = """#!/bin/sh
before='' after=''
[ "$*" != '-q -x' ] || { before='<gpu><product_name>' after='</product_name></gpu>'; echo '<nvidia_smi_log>'; }
for index in $(seq 0 $((STAND_IN_GPUS - 1))); do
    echo "${before}GPU $index: stand-in (UUID: GPU-$index)$after"
done
[ "$*" != '-q -x' ] || echo '</nvidia_smi_log>'
"""
# ssh [OPTION...] HOST COMMAND...: runs it on a host of this network, with the host's /etc/environment, as PAM does.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
exec env -i nsenter --target "$(cat "$STAND_IN_NETWORK/$host.pid")" --net --mount --uts bash -c '
    while IFS= read -r line; do export "$line"; done < /etc/environment 2>/dev/null
    cd ~ && eval "$1"' ssh "$*"
"""


@dataclass(frozen=True)
class ContainerSpec:
    """The settings that SageMaker gives one container of a job."""

    base: Path  # the folder that is its /opt/ml
    hyperparameters: Mapping[str, str]  # of CreateTrainingJob, verbatim
    host: str = "localhost"  # its own name (in a network; otherwise there is only localhost)
    hosts: Sequence[str] = ("localhost",)  # all names in rank order
    instance_type: str = "ml.g5.12xlarge"
    channels: Sequence[str] = ()
    gpus: int = 2  # how many it seems to have: the toolkit starts a rank for each
    # The job's Environment, and what else the container finds, such as S3_ENDPOINT_URL.
    env: Mapping[str, str] = field(default_factory=dict)
    job: str = "job-1"
    region: str = "us-east-1"
    disk: str = ""  # the folder of its base that gets a separate file system (in a network)


class Container:
    """A running container.  Leaving the `with` block ends it with all its processes.

    mark: in the environment of each of its processes; disk: a path to spec.disk, also after its end.
    """

    disk: Path | None = None

    def __init__(
        self,
        spec: ContainerSpec,
        network: HostNetwork | None = None,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Start it.  on_line: called with each line of stdout and stderr, in a thread that wait() and stop() join."""
        self.spec, self.mark = spec, f"STAND_IN_CONTAINER={uuid.uuid4().hex}"
        self._on_line, self._lines, self._network, self._disk = on_line, list[str](), network, -1
        _write_files(spec, "eth0" if network else "lo")
        self._process = self._started()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            if network:
                network.connect(spec.host, self._process)
                self._open_disk(network)
            self._process.write_line("on")
        except BaseException:
            self._clear()
            raise

    @property
    def log(self) -> str:
        """Its output so far."""
        return "".join(f"{line}\n" for line in self._lines)

    @property
    def failure(self) -> str:
        """The text of output/failure, of which DescribeTrainingJob shows the first 1,024 characters; "" without."""
        return failure_text(self.spec.base)

    @property
    def exit_code(self) -> int | None:
        """The exit code of `train`, or minus the signal that ended it; None while it runs."""
        return self._process.exit_code

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; return the exit code.  Raises TimeoutError."""
        if not self._process.wait(timeout_s):
            raise TimeoutError(f"{self.spec.host} has not ended after {timeout_s:g} s")
        return self._clear()

    def stop(self, grace_s: float = 120) -> int:
        """End it as SageMaker does, with SIGTERM and after grace_s SIGKILL; return the exit code."""
        self._process.send(signal.SIGTERM)
        self._process.wait(grace_s)
        return self._clear()

    def fill_disk(self) -> None:
        """Fill its disk.  Call it again after files were removed."""
        fill_disk(self._process.pid, self._disk, str(self.spec.base / self.spec.disk))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._clear()
        if self._disk >= 0:
            os.close(self._disk)
            self._disk, self.disk = -1, None

    def _started(self) -> ChildProcess:
        ml = self._network.ml if self._network else self.spec.base
        box = ["sh", "-c", POWER_ON, "sh", str(ml)]
        if self._network:
            box = self._network.command(self.spec.host, self.spec.base, self.spec.disk)
        env = _environment(self.spec, ml, self._network) | dict([self.mark.split("=")])
        return shell.start_child([*box, sys.executable, "-P", str(TOOLKIT)], env)  # -P: ranks inherit its path

    def _open_disk(self, network: HostNetwork) -> None:
        """Open the disk: the descriptor makes it visible outside its mounts, and keeps it after its end."""
        if self.spec.disk:
            inside = f"/proc/{self._process.pid}/root{network.ml / self.spec.disk}"
            self._disk = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
            self.disk = Path(f"/proc/self/fd/{self._disk}")

    def _read(self) -> None:
        for line in self._process.lines():
            text = line.decode(errors="replace").rstrip("\n")
            self._lines.append(text)
            self._on_line(text)

    def _clear(self) -> int:
        """End all its processes; return the exit code."""
        kill_marked(self.mark)
        self._process.wait(ENDED_S)
        self._reader.join(ENDED_S)
        self._process.close()
        code = self._process.exit_code
        assert code is not None
        return code


def failure_text(base: Path) -> str:
    """The text of output/failure; empty if there is no such file."""
    path = base / "output" / "failure"
    return path.read_text(errors="replace") if path.is_file() else ""


def _write_files(spec: ContainerSpec, interface: str) -> None:
    """Create the folders and input/config as SageMaker does, and programs of the image."""
    for name in ("input/config", "input/data", "model", "output/data", "code", "checkpoints", "tmp"):
        (spec.base / name).mkdir(parents=True, exist_ok=True)
    for command, text in {"nvidia-smi": NVIDIA_SMI, "ssh": SSH}.items():
        write_program(spec.base / "tmp/bin" / command, text)
    group, kind = "homogeneousCluster", spec.instance_type
    files: dict[str, Any] = {
        "hyperparameters": dict(spec.hyperparameters),
        "resourceconfig": {
            "current_host": spec.host, "hosts": [*spec.hosts], "current_instance_type": kind,
            "current_group_name": group, "network_interface_name": interface,
            "instance_groups": [{"instance_group_name": group, "instance_type": kind, "hosts": [*spec.hosts]}],
        },
        "inputdataconfig": {
            name: {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
            for name in spec.channels
        },
    }  # fmt: skip
    for name, content in files.items():
        (spec.base / "input/config" / f"{name}.json").write_text(json.dumps(content))


def _environment(spec: ContainerSpec, ml: Path, network: HostNetwork | None) -> dict[str, str]:
    """The container's environment: of this machine's own only PATH."""
    here = {"STAND_IN_NETWORK": str(network.folder)} if network else _shared_with_others()
    return {
        **here,
        "PATH": f"{ml / 'tmp/bin'}:{Path(sys.executable).parent}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(ml / "tmp"),
        "TMPDIR": str(ml / "tmp"),
        "STAND_IN_GPUS": str(spec.gpus),
        "SAGEMAKER_BASE_DIR": str(ml),
        # As in AWS's image.
        "SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main",
        "TRAINING_JOB_NAME": spec.job,
        "AWS_REGION": spec.region,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": "test",  # moto takes any
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_EC2_METADATA_DISABLED": "true",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INDEX": "1",  # it must not change the user's installation
        "PIP_NO_DEPS": "1",  # without an index it would only search the installed packages, for three seconds
        "PYTHONUNBUFFERED": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **spec.env,
    }


def _shared_with_others() -> dict[str, str]:
    """For a container without a separate host: a free port, and a name for torchrun that resolves here."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return {"STAND_IN_PORT": port, "PET_MASTER_PORT": port, "PET_LOCAL_ADDR": "localhost"}
