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
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from launch import shell
from launch.rehearse.ec2.namespaces import in_network, ip
from launch.shell import Held
from tests.processes import left_of, processes_with

HOST = Path(__file__).parent / "host"
REGION = "us-east-1"
CLOUD = "10.78.0.1"  # where the hosts of a network see what is exposed to them
NEEDED = ("ip", "nsenter", "unshare")

# Becomes the toolkit in a host of its own, once the network is there.
POWER_ON = """
set -eu
base=$1 ml=$2 network=$3 name=$4; shift 4
mount --bind "$base" "$ml"
mount --bind "$network/hosts" /etc/hosts
mount --bind "$network/$name.environment" /etc/environment
hostname "$name"
echo ready
read -r _
exec "$@"
"""


def why_no_network() -> str | None:
    """Why several hosts cannot be made on this machine, or None."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: iproute2, util-linux)"
    if not Path("/etc/environment").exists():
        return "needs an /etc/environment to mount over (Debian: libpam-modules)"
    return None if os.geteuid() == 0 else "needs root, for namespaces and mounts"


@dataclass(frozen=True)
class Instance:
    """What SageMaker tells one container of a job.

    base: the folder that is its /opt/ml; hyperparameters: of CreateTrainingJob, verbatim;
    hosts: all names in rank order, and host: its own (in a network; without one there is only localhost);
    gpus: how many it seems to have, which is how many ranks the toolkit starts on it;
    env: the job's Environment, and whatever else the container finds, such as S3_ENDPOINT_URL.
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


class Container:
    """One container that runs.  Leaving the `with` block ends it and all it started, which is asserted."""

    def __init__(
        self, told: Instance, network: Network | None = None, on_line: Callable[[str], None] = lambda line: None
    ) -> None:
        """Starts it.  on_line: called with each line of its log (stdout and stderr) as it comes, in a thread that
        wait() and stop() join.
        """
        self.told = told
        self._on_line, self._lines = on_line, list[str]()
        self._mark = uuid.uuid4().hex
        _write_config(told, "eth0" if network else "lo")
        self._process = self._started(network)
        self._reader = threading.Thread(target=self._read)
        try:
            if network:
                network.plug_in(told.host, self._process)
        except BaseException:
            self._process.kill()
            raise
        self._reader.start()

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
        return self._process.poll()

    def wait(self, timeout_s: float) -> int:
        """The exit code, when it has ended by itself.  Raises TimeoutExpired."""
        self._process.wait(timeout_s)
        self._clear()
        return self._process.returncode

    def stop(self, grace_s: float = 120) -> int:
        """The exit code, after ending it as SageMaker does: SIGTERM, and after grace_s SIGKILL to all of it."""
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        self._clear()
        return self._process.returncode

    def processes(self, word: str = "") -> list[int]:
        """Those of its processes whose command line has `word`."""
        return [pid for pid in processes_with(self._marked) if word in _command_line(pid)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._clear()

    @property
    def _marked(self) -> str:
        return f"STAND_IN_CONTAINER={self._mark}"

    def _started(self, network: Network | None) -> subprocess.Popen[bytes]:
        ml = network.ml if network else self.told.base
        command = [sys.executable, "-P", str(HOST / "toolkit.py")]  # -P: ranks inherit its path
        if network:
            box = [self.told.base, network.ml, network.folder, self.told.host]
            command = ["unshare", "--net", "--mount", "--uts", "bash", "-c", POWER_ON, "bash", *map(str, box), *command]
        return subprocess.Popen(
            command, cwd=self.told.base, env=_environment(self.told, ml, network) | dict([self._marked.split("=")]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0, start_new_session=True,
        )  # fmt: skip

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            self._lines.append(text)
            self._on_line(text)

    def _clear(self) -> None:
        """What a container that ends takes with it, at once."""
        for _ in range(100):  # what one of them starts meanwhile is found the next time
            for pid in processes_with(self._marked):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not processes_with(self._marked):
                break
            time.sleep(0.02)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        assert left_of(self._marked) == []


@dataclass
class Network:
    """Hosts that reach each other by name, and nothing else but what is exposed to them.

    ml: where each of them sees its own base; folder: names, addresses and signs of life.
    """

    folder: Path
    names: Sequence[str]
    switch: Held
    servers: list[socketserver.BaseServer] = field(default_factory=list)

    @property
    def ml(self) -> Path:
        return self.folder / "ml"

    def expose(self, port: int) -> str:
        """A URL at which the hosts reach what listens at 127.0.0.1:port on this machine, such as moto."""
        server = in_network(self.switch.pid, lambda: _Relay(port))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.servers.append(server)
        return f"http://{CLOUD}:{server.server_address[1]}"

    def plug_in(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Connects the host that `process` is in, and lets it start."""
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{name} did not start: {process.stdout.read().decode()}")
        index = self.names.index(name)
        (self.folder / f"{name}.pid").write_text(str(process.pid))
        ip(f"/proc/{self.switch.pid}/ns/net",
           f"link add port{index} type veth peer name eth0 netns {process.pid}",
            f"link set port{index} master bridge up")  # fmt: skip
        ip(f"/proc/{process.pid}/ns/net", "link set lo up", f"addr add {_address(index)}/24 dev eth0",
            "link set eth0 up")  # fmt: skip
        process.stdin.write(b"on\n")


@contextmanager
def network(folder: Path, names: Sequence[str]) -> Iterator[Network]:
    """A network for hosts with these names, in rank order.  It goes with its hosts."""
    folder.mkdir(parents=True)
    (folder / "ml").mkdir()
    addresses = "".join(f"{_address(index)} {name}\n" for index, name in enumerate(names))
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{addresses}")
    for name in names:
        (folder / f"{name}.environment").touch()
    with ExitStack() as stack:
        switch = shell.hold(["unshare", "--net", "sh", "-c", "echo ready; exec cat >/dev/null"], dict(os.environ))
        stack.callback(switch.let_go)
        # With an address of its own: otherwise it has one of its ports', and is out of reach when that node goes.
        ip(f"/proc/{switch.pid}/ns/net", "link set lo up", "link add bridge address 02:00:00:00:00:01 type bridge",
            f"addr add {CLOUD}/24 dev bridge", "link set bridge up")  # fmt: skip
        made = Network(folder, names, switch)
        yield made
        for server in made.servers:
            server.shutdown()
            server.server_close()


def _address(index: int) -> str:
    return f"10.78.0.{11 + index}"


class _Relay(socketserver.ThreadingTCPServer):
    """Listens in a network and passes on to a port of this machine: threads stay where they began."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", port)) as there:
                    back = threading.Thread(target=_copy, args=[there, self.request], daemon=True)
                    back.start()
                    _copy(self.request, there)
                    back.join()

        super().__init__((CLOUD, 0), Connection)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):  # the other side has gone
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def _write_config(told: Instance, interface: str) -> None:
    """What SageMaker writes into input/config, and the folders that it makes."""
    for name in ("input/config", "input/data", "model", "output/data", "code", "checkpoints", "tmp"):
        (told.base / name).mkdir(parents=True, exist_ok=True)
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
        "PATH": f"{HOST / 'bin'}:{Path(sys.executable).parent}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(ml / "tmp"),
        "TMPDIR": str(ml / "tmp"),
        "STAND_IN_GPUS": str(told.gpus),
        "SAGEMAKER_BASE_DIR": str(ml),
        # As in AWS's image.
        "SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main",
        "TRAINING_JOB_NAME": told.job,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
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


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it has just ended
        return ""
