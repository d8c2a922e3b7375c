"""The command `train` of AWS's training toolkit, on a machine that is no container: its stdin is the plug.

Only what belongs to a host is replaced, never what the toolkit decides or starts: the ssh server, the 30 s it
leaves other hosts to notice the end, its preload of a host name from /opt/ml, and a port and a /tmp of its own.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sagemaker_pytorch_container import training
from sagemaker_training import mpi, smdataparallel
from sagemaker_training.cli.train import main

ME = f"STAND_IN_CONTAINER={os.environ['STAND_IN_CONTAINER']}".encode()


def go_off_without(plug: int) -> None:
    """Ends this container when the test that holds the other end of `plug` is gone."""
    while os.read(plug, 1):
        pass
    mine = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if is_mine(path)]
    for pid in sorted(mine, key=lambda pid: pid == os.getpid()):
        os.kill(pid, signal.SIGKILL)


def is_mine(environment: Path) -> bool:
    try:
        return ME in environment.read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return False


def answers(host: str, port: int = 22) -> bool:
    """Whether the ssh server of `host` runs."""
    return door(host).exists()


def open_for_ssh() -> None:
    if "STAND_IN_NETWORK" in os.environ:
        door(os.environ["SM_CURRENT_HOST"]).touch()


def door(host: str) -> Path:
    return Path(os.environ["STAND_IN_NETWORK"]) / f"{host}.ssh"


def a_moment(seconds: float) -> None:
    time.sleep(min(seconds, 0.2))


modules: list[Any] = [smdataparallel, mpi]
for module in modules:
    module._start_sshd_daemon = open_for_ssh
    module._can_connect = answers
    module.time = SimpleNamespace(sleep=a_moment, time=time.time)
    module.getfile = lambda module: ""
    module.MPI_FINISHED_STATUS_FILE = f"{os.environ['TMPDIR']}/done"
training.MASTER_PORT = os.environ.get("STAND_IN_PORT", training.MASTER_PORT)

# Not on descriptor 0, which mpirun reads.
held = os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
threading.Thread(target=go_off_without, args=[held], daemon=True).start()
sys.exit(main())
