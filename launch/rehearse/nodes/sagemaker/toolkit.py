"""The command `train` of AWS's training toolkit, outside a container.  It ends when its stdin is closed.

A program, which nothing imports.  It replaces only what belongs to a host, not what the toolkit decides or starts:
the ssh server, the 30 s for other hosts to notice the end, the preload of a host name from /opt/ml, the port and /tmp.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def main() -> None:
    """Run `train`; exit with its code."""
    from sagemaker_pytorch_container import training
    from sagemaker_training import mpi, smdataparallel
    from sagemaker_training.cli.train import main as train

    modules: list[Any] = [smdataparallel, mpi]
    for module in modules:
        module._start_sshd_daemon = open_for_ssh
        module._can_connect = answers
        module.time = SimpleNamespace(sleep=short_sleep, time=time.time)
        module.getfile = lambda module: ""
        module.MPI_FINISHED_STATUS_FILE = f"{os.environ['TMPDIR']}/done"
    training.MASTER_PORT = os.environ.get("STAND_IN_PORT", training.MASTER_PORT)
    sys.exit(train())


def end_with_stdin() -> None:
    """End this container when its stdin is closed; on another descriptor, as mpirun reads from 0."""
    held = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    mark = f"STAND_IN_CONTAINER={os.environ['STAND_IN_CONTAINER']}".encode()
    threading.Thread(target=end_when_closed, args=[held, mark], daemon=True).start()


def end_when_closed(plug: int, mark: bytes) -> None:
    """Wait until `plug` is closed, then end this container."""
    while os.read(plug, 1):
        pass
    give_up = time.monotonic() + 5
    # Repeatedly, as one of them may just be starting another.
    while (others := others_with(mark)) and time.monotonic() < give_up:
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


def others_with(mark: bytes) -> list[int]:
    """The other processes of this container."""
    pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if has(path, mark)]
    return [pid for pid in pids if pid != os.getpid()]


def has(environment: Path, mark: bytes) -> bool:
    try:
        return mark in environment.read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return False


def answers(host: str, port: int = 22) -> bool:
    """Whether the ssh server of `host` runs."""
    return ssh_marker(host).exists()


def open_for_ssh() -> None:
    if "STAND_IN_NETWORK" in os.environ:
        ssh_marker(os.environ["SM_CURRENT_HOST"]).touch()


def ssh_marker(host: str) -> Path:
    return Path(os.environ["STAND_IN_NETWORK"]) / f"{host}.ssh"


def short_sleep(seconds: float) -> None:
    time.sleep(min(seconds, 0.2))


if __name__ == "__main__":
    end_with_stdin()
    main()
