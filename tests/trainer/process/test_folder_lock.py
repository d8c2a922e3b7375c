"""One run at a time writes to a folder, and a dead run's lock stands in no other run's way."""

import errno
import fcntl
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from trainer.process.run_folder import IN_USE, FolderLock, Taken, keep_out

DEAD = {"host": "gone", "process": 42, "since": "2026-11-22T18:20:03.5+00:00"}


def take_and_hold(folder: Path, taken: Any, run: str = "") -> None:
    FolderLock(folder, run).take()
    taken.put(os.getpid())
    time.sleep(120)


def test_a_second_run_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    taken = warm.queue()
    first = warm.start(take_and_hold, tmp_path, taken)
    number = taken.get(timeout=30)

    with pytest.raises(Taken) as refused:
        FolderLock(tmp_path).take()

    assert f"{tmp_path} is in use by process {number} on host {socket.gethostname()}" in str(refused.value)
    assert refused.value.code == 6

    os.kill(number, signal.SIGKILL)
    first.join(timeout=10)
    FolderLock(tmp_path).take()  # a dead one's is taken over at once


def test_the_folder_of_a_run_that_has_ended_is_free_and_clean(tmp_path: Path) -> None:
    for _ in range(2):
        lock = FolderLock(tmp_path)
        lock.take()
        lock.release()
        assert list(tmp_path.iterdir()) == []


def test_without_locks_of_the_file_system_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Lustre that is mounted without them."""

    def refuse(file: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    FolderLock(tmp_path).take()
    keep_out(tmp_path, "mine")


def test_processes_beside_the_owner_go_on_unless_another_run_lives(tmp_path: Path) -> None:
    keep_out(tmp_path, "mine")  # there is no lock
    (tmp_path / IN_USE).write_text(json.dumps(DEAD))
    keep_out(tmp_path, "mine")
    lock = FolderLock(tmp_path, "mine")
    lock.take()
    keep_out(tmp_path, "mine")

    with pytest.raises(Taken):
        keep_out(tmp_path, "another")
    lock.release()
