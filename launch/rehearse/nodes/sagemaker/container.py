"""A SageMaker instance on this machine: AWS's own training toolkit on CPU ranks, without Docker or an account.

    told = Instance(base, hyperparameters)          # as in CreateTrainingJob: text for text
    with Container(told, on_line=print) as container:
        code = container.wait(120)                  # or container.stop(), as SageMaker does
        print(container.failure)                    # what becomes FailureReason, or ""

One host needs nothing but the toolkit.  Several need root: `with network(folder, names) as net`, and a
Container(..., net) for each name, which then has a network, a host name and an /opt/ml of its own.
`base` is the container's /opt/ml: the caller fills base/input/data/CHANNEL and base/checkpoints before, and
takes base/model, base/output and base/checkpoints after.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from launch.core import shell
from launch.core.shell import ChildProcess
from launch.rehearse.nodes.ec2.node import write_program
from launch.rehearse.nodes.sagemaker.network import Network
from trainer.errors import MachineError

TOOLKIT = Path(__file__).with_name("toolkit.py")
ENDED_S = 10.0  # how long what was killed may take to be gone

# Becomes the container where the machine is not its own.
POWER_ON = 'cd "$1" && shift && echo ready && read -r _ && exec "$@" 2>&1'

# What AWS's image has and this machine may lack; the toolkit starts one rank for each GPU that it sees.
NVIDIA_SMI = """#!/bin/sh
for index in $(seq 0 $((STAND_IN_GPUS - 1))); do echo "GPU $index: stand-in (UUID: GPU-$index)"; done
"""
# ssh [OPTION...] HOST COMMAND...: runs it on a host of this network, with what its /etc/environment says, as PAM does.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
exec env -i nsenter --target "$(cat "$STAND_IN_NETWORK/$host.pid")" --net --mount --uts bash -c '
    while IFS= read -r line; do export "$line"; done < /etc/environment 2>/dev/null
    cd ~ && eval "$1"' ssh "$*"
"""


@dataclass(frozen=True)
class Instance:
    """What SageMaker tells one container of a job.

    base: the folder that is its /opt/ml; hyperparameters: of CreateTrainingJob, verbatim;
    hosts: all names in rank order, and host: its own (in a network; without one there is only localhost);
    gpus: how many it seems to have, which is how many ranks the toolkit starts on it;
    env: the job's Environment, and whatever else the container finds, such as S3_ENDPOINT_URL;
    disk: the folder of its base that is to be on a file system of its own (in a network).
    """

    base: Path
    hyperparameters: Mapping[str, str]
    host: str = "localhost"
    hosts: Sequence[str] = ("localhost",)
    instance_type: str = "ml.g5.12xlarge"
    channels: Sequence[str] = ()
    gpus: int = 2
    env: Mapping[str, str] = field(default_factory=dict)
    job: str = "job-1"
    region: str = "us-east-1"
    disk: str = ""


class Container:
    """One container that runs.  Leaving the `with` block ends it and all that it started.

    mark: is in the environment of every process of it; disk: where told.disk can be seen, also when it has ended.
    """

    disk: Path | None = None

    def __init__(
        self, told: Instance, network: Network | None = None, on_line: Callable[[str], None] = lambda line: None
    ) -> None:
        """Starts it.  on_line: called with each line of its log (stdout and stderr) as it comes, in a thread that
        wait() and stop() join.
        """
        self.told, self.mark = told, f"STAND_IN_CONTAINER={uuid.uuid4().hex}"
        self._on_line, self._lines, self._network, self._disk = on_line, list[str](), network, -1
        _write_files(told, "eth0" if network else "lo")
        self._process = self._started()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            if network:
                network.plug_in(told.host, self._process)
                self._open_disk(network)
            self._process.tell("on")
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
        file = self.told.base / "output" / "failure"
        return file.read_text() if file.exists() else ""

    @property
    def exit_code(self) -> int | None:
        """Of `train`; None while it runs.  Minus the signal where one ended it."""
        return self._process.exit_code

    def wait(self, timeout_s: float) -> int:
        """The exit code, when it has ended by itself.  Raises TimeoutError."""
        if not self._process.wait(timeout_s):
            raise TimeoutError(f"{self.told.host} has not ended after {timeout_s:g} s")
        return self._clear()

    def stop(self, grace_s: float = 120) -> int:
        """The exit code, after ending it as SageMaker does: SIGTERM, and after grace_s SIGKILL to all of it."""
        self._process.send(signal.SIGTERM)
        self._process.wait(grace_s)
        return self._clear()

    def fill_disk(self) -> None:
        """Leaves no room on its disk; what is removed later makes no room either."""
        assert self._network is not None
        with suppress(OSError, MachineError):  # it has just ended, or the disk has got fuller than that
            disk = os.statvfs(self._disk)
            used = max(1, disk.f_blocks - disk.f_bfree) * disk.f_frsize
            remount = ["mount", "-o", f"remount,size={used}", str(self.told.base / self.told.disk)]
            shell.output_of(["nsenter", f"--mount=/proc/{self._process.pid}/ns/mnt", *remount])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._clear()
        if self._disk >= 0:
            os.close(self._disk)
            self._disk, self.disk = -1, None

    def _started(self) -> ChildProcess:
        ml = self._network.ml if self._network else self.told.base
        box = ["sh", "-c", POWER_ON, "sh", str(ml)]
        if self._network:
            box = self._network.command(self.told.host, self.told.base, self.told.disk)
        env = _environment(self.told, ml, self._network) | dict([self.mark.split("=")])
        return shell.start_child([*box, sys.executable, "-P", str(TOOLKIT)], env)  # -P: ranks inherit its path

    def _open_disk(self, network: Network) -> None:
        """Its descriptor shows the disk to us, who have other mounts, and keeps it when the container is gone."""
        if self.told.disk:
            inside = f"/proc/{self._process.pid}/root{network.ml / self.told.disk}"
            self._disk = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
            self.disk = Path(f"/proc/self/fd/{self._disk}")

    def _read(self) -> None:
        for line in self._process.lines():
            text = line.decode(errors="replace").rstrip("\n")
            self._lines.append(text)
            self._on_line(text)

    def _clear(self) -> int:
        """What a container that ends takes with it, at once; the exit code."""
        shell.kill_marked(self.mark)
        self._process.wait(ENDED_S)
        self._reader.join(ENDED_S)
        self._process.let_go()
        code = self._process.exit_code
        assert code is not None
        return code


def _write_files(told: Instance, interface: str) -> None:
    """What SageMaker writes into input/config, the folders that it makes, and programs of the image."""
    for name in ("input/config", "input/data", "model", "output/data", "code", "checkpoints", "tmp"):
        (told.base / name).mkdir(parents=True, exist_ok=True)
    for command, text in {"nvidia-smi": NVIDIA_SMI, "ssh": SSH}.items():
        write_program(told.base / "tmp/bin" / command, text)
    group, kind = "homogeneousCluster", told.instance_type
    files: dict[str, Any] = {
        "hyperparameters": dict(told.hyperparameters),
        "resourceconfig": {
            "current_host": told.host, "hosts": [*told.hosts], "current_instance_type": kind,
            "current_group_name": group, "network_interface_name": interface,
            "instance_groups": [{"instance_group_name": group, "instance_type": kind, "hosts": [*told.hosts]}],
        },
        "inputdataconfig": {
            name: {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
            for name in told.channels
        },
    }  # fmt: skip
    for name, content in files.items():
        (told.base / "input/config" / f"{name}.json").write_text(json.dumps(content))


def _environment(told: Instance, ml: Path, network: Network | None) -> dict[str, str]:
    """The container's, with nothing of this machine's own but its programs."""
    here = {"STAND_IN_NETWORK": str(network.folder)} if network else _shared_with_others()
    return {
        **here,
        "PATH": f"{ml / 'tmp/bin'}:{Path(sys.executable).parent}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(ml / "tmp"),
        "TMPDIR": str(ml / "tmp"),
        "STAND_IN_GPUS": str(told.gpus),
        "SAGEMAKER_BASE_DIR": str(ml),
        # As in AWS's image.
        "SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main",
        "TRAINING_JOB_NAME": told.job,
        "AWS_REGION": told.region,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",  # nosec B105  # moto takes any
        "AWS_EC2_METADATA_DISABLED": "true",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INDEX": "1",  # what is installed here belongs to the user
        "PYTHONUNBUFFERED": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **told.env,
    }


def _shared_with_others() -> dict[str, str]:
    """Where the machine is not the container's own: a free port, and a name for torchrun that is known here."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return {"STAND_IN_PORT": port, "PET_MASTER_PORT": port, "PET_LOCAL_ADDR": "localhost"}
