"""SageMaker's hosts as containers: the base that AWS's images are for a job on several instances, and jobs on two.

Real: AWS's toolkit with its own `train`, `_can_connect`, sshd, mpirun, the preloads of a host name, and every wait.

Stand-ins, and why:
- The start script and changehostname.c, which are in AWS's images and in no package: written again here, to do what
  https://github.com/aws/deep-learning-containers, docker/pytorch/training/common, does: it compiles in the folder where
  it starts, and preloads from /.
- Python, torch, the toolkit, sshd and Open MPI are this machine's, mounted; AWS's images bring the same programs.
- An instance is a network namespace on a bridge; its host name is "aws", as on SageMaker, and not algo-1.
- There are no GPUs, so the toolkit starts one rank per host, with gloo.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.core import shell
from launch.rehearse.nodes.ec2.node import write_program
from launch.rehearse.nodes.sagemaker.container import ContainerSpec, _write_files
from launch.rehearse.nodes.sagemaker.network import HostNetwork, network
from tests.container.engine import BASE, Engine

HOSTS = ("algo-1", "algo-2")
PROGRAMS = ("sshd", "ssh-keygen", "mpirun.openmpi", "jq", "gcc")

START = """#!/usr/bin/env bash
[ "$1" = train ] || exec "$@"
name=$(jq .current_host /opt/ml/input/config/resourceconfig.json)
sed -i "s/PLACEHOLDER_HOSTNAME/$name/" changehostname.c
gcc -fPIC -shared -o libchangehostname.so changehostname.c
LD_PRELOAD=/libchangehostname.so train
"""
TORCHRUN = "#!/opt/base/bin/python\nfrom torch.distributed.run import main\n\nmain()\n"
CHANGEHOSTNAME = """#include <string.h>
int gethostname(char *name, size_t size) { strncpy(name, PLACEHOLDER_HOSTNAME, size); return 0; }
"""
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nsshd:x:103:65534::/run/sshd:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "shadow": "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "environment": "",
    "default/locale": "",
    "login.defs": "",
}


def make_host_base(engine: Engine) -> str:
    """A base with what AWS's images have for several hosts; its name."""
    root, name = engine.own / "hosts", f"{BASE}-hosts"
    write_program(root / "opt/base/bin/start_with_right_hostname.sh", START)
    (root / "opt/base/bin/mpirun").symlink_to("/usr/bin/orterun")  # not that of Python's package, which is not mounted
    write_program(root / "opt/base/bin/torchrun", TORCHRUN)
    (root / "changehostname.c").write_text(CHANGEHOSTNAME)
    _write_ssh(root)
    container = engine.buildah("from", BASE).strip()
    engine.buildah("add", "--quiet", container, root, "/")
    engine.buildah("config", "--entrypoint", '["bash", "-m", "start_with_right_hostname.sh"]', container)
    engine.buildah("commit", "--quiet", "--rm", container, name)
    shutil.rmtree(root)
    return name


def _write_ssh(root: Path) -> None:
    """A key with which root reaches every host that has this image, as a message of smdataparallel.py says."""
    for path, text in ETC.items():
        (root / "etc" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "etc" / path).write_text(text)
    for folder in ("pam.d", "security", "ssh"):
        shutil.copytree(f"/etc/{folder}", root / "etc" / folder, ignore=shutil.ignore_patterns("ssh_host_*"))
    pam = root / "etc/pam.d/sshd"
    pam.write_text(pam.read_text().replace("required     pam_loginuid.so", "optional     pam_loginuid.so"))
    home = root / "root/.ssh"
    home.mkdir(parents=True, mode=0o700)
    (root / "root").chmod(0o700)
    (root / "run/sshd").mkdir(parents=True)
    for kind, place in (("ed25519", root / "etc/ssh/ssh_host_ed25519_key"), ("rsa", home / "id_rsa")):
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", place], check=True)
    shutil.copy(home / "id_rsa.pub", home / "authorized_keys")
    (home / "config").write_text("Host *\n  StrictHostKeyChecking no\n")


@dataclass
class Job:
    """A job on HOSTS.  bases: the /opt/ml of each; logs: files with what each printed."""

    bases: Sequence[Path]
    logs: Sequence[Path]
    processes: Sequence[subprocess.Popen[bytes]]

    def wait(self, timeout_s: float) -> list[int]:
        """The exit codes of the hosts.  Where the first has failed, others, which may wait for it, have a minute."""
        first, *others = self.processes
        codes = [first.wait(timeout_s)]
        return codes + [process.wait(min(timeout_s, 60) if codes[0] else timeout_s) for process in others]

    @property
    def log(self) -> str:
        """What all hosts printed."""
        return "\n".join(file.read_text(errors="replace") for file in self.logs)


@contextmanager
def running(engine: Engine, image: str, folder: Path, settings: dict[str, Any], code: Path) -> Iterator[Job]:
    """Starts `train` in containers of `image` on two hosts, until the end of the block.

    settings: hyperparameters; code: a folder whose files are the job's source.
    """
    given = {name: json.dumps(value) for name, value in settings.items()}
    bases, logs = [folder / host for host in HOSTS], [folder / f"{host}.log" for host in HOSTS]
    with ExitStack() as stack:
        net = stack.enter_context(network(folder / "network", HOSTS))
        for host, base in zip(HOSTS, bases, strict=True):
            _write_files(ContainerSpec(base, given, host, HOSTS), "eth0")
            shutil.copytree(code, base / "code", dirs_exist_ok=True)
        processes = [
            stack.enter_context(_host(engine, image, net, host, base, log))
            for host, base, log in zip(HOSTS, bases, logs, strict=True)
        ]
        yield Job(bases, logs, processes)


@contextmanager
def _host(
    engine: Engine, image: str, net: HostNetwork, host: str, base: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A host's container on the network."""
    port = shell.start_child(["unshare", "--net", "sh", "-c", "echo ready; exec cat >/dev/null"], {"PATH": os.defpath})
    name = f"{net.folder.parent.name}-{host}"
    command = [
        *("podman", "run", "--rm", "--pull", "never", "--name", name, "--hostname", "aws", "--no-hosts"),
        # runc fails at times to set limits of its own: "error setting rlimit type 7: operation not permitted"
        *("--ulimit", "host"),
        *("--network", f"ns:/proc/{port.pid}/ns/net", "-v", f"{net.folder}/hosts:/etc/hosts:ro"),
        *("-v", f"{base}:/opt/ml", "-e", "TRAINING_JOB_NAME=job-1", image, "train"),
    ]
    try:
        net.connect(host, port)
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=engine.env())
        try:
            yield process
        finally:
            subprocess.run(["podman", "kill", name], env=engine.env(), capture_output=True, check=False)
            process.wait(60)
    finally:
        port.close()
