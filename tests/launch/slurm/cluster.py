"""A real Slurm of two nodes on this machine, from Debian's packages, without systemd: started and ended in a second."""

import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.processes import left_of, processes_with
from tests.warm import free_port

READY_S = 60.0

CONF = """\
ClusterName=ci
SlurmctldHost={host}(127.0.0.1)
CommunicationParameters=EnableIPv6
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job waits for as long as its credential is good: 120 s by default, and 5 s at least.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
# Ranks make their port of the job's id, and other clusters on this machine count too.
FirstJobId={first_job}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
PropagateResourceLimits=NONE
SchedulerParameters=sched_interval=1,bf_interval=2,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
GresTypes=gpu
KillWait=30
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=8 RealMemory=4000 Gres=gpu:a100:2 Feature=fast
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=8 RealMemory=4000 Gres=gpu:a100:2 Feature=fast
PartitionName=main Nodes=ALL Default=YES MaxTime=30 State=UP OverSubscribe=FORCE:4
PartitionName=long Nodes=n0 MaxTime=7-0 State=UP OverSubscribe=FORCE:4
"""


@dataclass(frozen=True)
class Cluster:
    """folder: all that it writes."""

    folder: Path

    @property
    def mark(self) -> str:
        """What every process of it, and of its jobs, has in its environment."""
        return f"SLURM_CONF={self.folder}/slurm.conf"

    def call(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=True, timeout=60).stdout

    @property
    def env(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        return {**os.environ, name: value, "PATH": f"{os.environ['PATH']}:/usr/sbin"}

    def empty(self) -> None:
        """Ends every job, and all that they started; a job in a test's way would change the test."""
        ids = self.call("squeue", "-h", "--array", "-o", "%i").split()
        if ids:
            self.call("scancel", *ids)
            for number in ids:
                with suppress(subprocess.CalledProcessError):  # it is gone already
                    self.call("scancel", "--signal=KILL", "--full", number)
        until = time.monotonic() + READY_S
        while left := self.call("squeue", "-h", "-o", "%i").split():
            assert time.monotonic() < until, f"jobs {left} do not end within {READY_S} s"
            time.sleep(0.1)


@contextmanager
def started() -> Iterator[Cluster]:
    """A cluster for as long as the block runs; afterwards no process of it is left, however it went."""
    # Not below pytest's folders, whose names are too long for a socket's.
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="slurm-")))
    try:
        _configure(cluster)
        _start(cluster)
        yield cluster
    finally:
        # Again and again, because one of them may just be starting another.
        while left := processes_with(cluster.mark):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            left_of(cluster.mark, within_s=0.5)
        shutil.rmtree(cluster.folder, ignore_errors=True)


def _configure(cluster: Cluster) -> None:
    folder = cluster.folder
    folder.chmod(0o755)
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    for number, gpu in enumerate(("gpu0", "gpu1")):
        _device(folder / gpu, number)
    port, first, second = free_port(), free_port(), free_port()
    # 15000 + id % 17000 is to be below the ports that connections get, too.
    first_job = 1 + os.getpid() * 97 % 16_000
    host = socket.gethostname().partition(".")[0]
    text = CONF.format(folder=folder, host=host, port=port, first=first, second=second, first_job=first_job)
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text(f"NodeName=n[0-1] Name=gpu Type=a100 File={folder}/gpu[0-1]\n")


def _device(path: Path, number: int) -> None:
    """A device without a driver: Slurm assigns GPUs to tasks by device numbers.  A file where none is allowed."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(195, number))
    except OSError:
        path.touch()


def _start(cluster: Cluster) -> None:
    folder = cluster.folder
    munge = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid", "log-file": "munged.log",
             "seed-file": "munged.seed"}  # fmt: skip
    # --force: it does not like folders that others may write to, such as /tmp.
    _daemon(
        cluster, "munged", "--foreground", "--force", *(f"--{name}={folder / file}" for name, file in munge.items())
    )
    until = time.monotonic() + READY_S
    while not (folder / "munge.socket").exists() and time.monotonic() < until:
        time.sleep(0.02)
    _daemon(cluster, "slurmctld", "-D", "-c")
    for node in ("n0", "n1"):
        _daemon(cluster, "slurmd", "-D", "-c", "-N", node)
    while time.monotonic() < until:
        with suppress(subprocess.CalledProcessError):  # the controller does not listen yet
            if len(cluster.call("sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N").split()) == 2:
                return
        time.sleep(0.05)
    raise AssertionError(f"Slurm is not up after {READY_S:g} s: {(folder / 'slurmctld.log').read_text()[-2000:]}")


def _daemon(cluster: Cluster, *command: str) -> None:
    """Starts a daemon that ends by the mark in its environment; in a session of its own, out of Ctrl-C's reach."""
    with (cluster.folder / f"{command[0]}.out").open("ab") as out:
        daemon = subprocess.Popen(command, env=cluster.env, stdout=out, stderr=out, start_new_session=True)
    _reaped.append(daemon)


# Kept until this process ends, which reaps them: a Popen that is forgotten while its process runs is a warning.
_reaped: list["subprocess.Popen[bytes]"] = []
