"""Programs of nodes that are processes: `python programs.py NAME ARGUMENTS...`.  Nothing imports this file.

power keeps a node on: when its standard input is closed or it gets SIGTERM, it ends with all it has started.  The
others are GNU's programs as far as infra/ec2/boot.sh uses them, for systems without them.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def power(words: list[str]) -> int:
    """power ROOT: runs the node's user data until the node is switched off."""
    root = Path(words[0])
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
    return 0


def _wait_for_plug(off: threading.Event) -> None:
    while os.read(0, 100):
        pass
    off.set()


def _kill_all() -> None:
    """Kill all descendants, repeatedly, as one of them may just be starting another."""
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


# ---- GNU's programs


def flock(words: list[str]) -> int:
    """flock --nonblock FD"""
    try:
        fcntl.flock(int(words[-1]), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 1
    return 0


def timeout(words: list[str]) -> int:
    """timeout [--kill-after=S] S COMMAND..."""
    rest = [word for word in words if not word.startswith("--kill-after")] if words[0].startswith("--") else words
    process = subprocess.Popen(rest[1:])
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return process.wait(float(rest[0]))
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return 124


def find(words: list[str]) -> int:
    """find . -type f ! -name '.*' -printf '%T@ %s %P\\n', or else the system's own"""
    if "-printf" not in words:
        os.execv("/usr/bin/find", ["find", *words])  # noqa: S606  # what it stands for
    for folder, _, names in os.walk("."):
        for name in names:
            path = Path(folder, name)
            if not name.startswith(".") and path.is_file():
                state = path.stat()
                print(f"{state.st_mtime_ns / 1e9:.9f} {state.st_size} {path}")
    return 0


def tail(words: list[str]) -> int:
    """tail --pid=PID -f /dev/null, or else the system's own"""
    if not words[0].startswith("--pid="):
        os.execv("/usr/bin/tail", ["tail", *words])  # noqa: S606  # what it stands for
    while True:
        try:
            os.kill(int(words[0].partition("=")[2]), 0)
        except ProcessLookupError:
            return 0
        time.sleep(0.05)


PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "power": power,
    "flock": flock,
    "timeout": timeout,
    "find": find,
    "tail": tail,
}

if __name__ == "__main__":
    sys.exit(PROGRAMS[sys.argv[1]](sys.argv[2:]))
