"""Keeps a node of processes.py on: a program, `python power.py ROOT`, which nothing imports.

It runs the node's user data.  When its standard input is closed or it gets SIGTERM, it ends with all it has started.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def main(root: Path) -> None:
    """Runs the node until it is switched off."""
    if sys.platform == "linux":  # orphans become children of this process, and are found
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    off = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: off.set())
    print("ready", flush=True)
    os.read(0, 100)  # the line that starts it
    threading.Thread(target=_wait_for_plug, args=[off], daemon=True).start()
    with (root / "ec2" / "console").open("wb") as console:
        subprocess.Popen(
            ["bash", str(root / "ec2" / "user-data")],
            env={**os.environ, "EC2_POWER": str(os.getpid())},
            stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT, cwd=root,
        )  # fmt: skip
    while not off.wait(0.2):
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    _kill_all()


def _wait_for_plug(off: threading.Event) -> None:
    while os.read(0, 100):
        pass
    off.set()


def _kill_all() -> None:
    """Kills all descendants, repeatedly, as one of them may just be starting another."""
    give_up = time.monotonic() + 4.0
    while (left := _descendants()) and time.monotonic() < give_up:
        for pid in sorted(left):  # parents first, so that they do not report the end of their children
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _descendants() -> set[int]:
    parents = dict(_parents())
    descendants, newest = set[int](), {os.getpid()}
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest} - descendants
        descendants |= newest
    return descendants


def _parents() -> list[tuple[int, int]]:
    """Every process with its parent."""
    if not Path("/proc/self/stat").exists():
        ps = subprocess.Popen(["ps", "-axo", "pid=,ppid="], stdout=subprocess.PIPE, text=True)
        output, _ = ps.communicate()
        rows = [line.split() for line in output.splitlines()]
        return [(int(pid), int(parent)) for pid, parent in rows if int(pid) != ps.pid]
    rows_here = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            rows_here += [(int(stat.parent.name), int(parent))] * (state != "Z")
    return rows_here


if __name__ == "__main__":
    main(Path(sys.argv[1]))
