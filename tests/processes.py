"""Which processes still run, for tests that end some."""

import time
from contextlib import suppress
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether process `pid` runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_with(variable: str) -> list[int]:
    """Every live process that inherited the environment variable `variable`, written NAME=value."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has just ended
            if variable.encode() in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def begun_with(variable: str, count: int, within_s: float = 10.0) -> list[int]:
    """Those of processes_with(variable), once there are `count`: a new one shows no variables for a moment."""
    end = time.monotonic() + within_s
    while len(found := processes_with(variable)) < count and time.monotonic() < end:
        time.sleep(0.01)
    return found


def left_of(variable: str, within_s: float = 5.0) -> list[int]:
    """Those of processes_with(variable) that are still there after `within_s`; the dead need a moment to go."""
    end = time.monotonic() + within_s
    while (left := processes_with(variable)) and time.monotonic() < end:
        time.sleep(0.01)
    return left
