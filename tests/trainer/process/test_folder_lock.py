"""One run at a time writes to a folder, and a dead run's lock stands in no other run's way."""

import errno
import fcntl
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from trainer.process.folder_lock import IN_USE, FolderLock, Taken, another, keep_out

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

    since = json.loads((tmp_path / IN_USE).read_text())["since"][:19].replace("T", " ")
    assert str(refused.value) == (
        f"{tmp_path} is in use by process {number} on host {socket.gethostname()}, since {since} UTC; "
        "give another folder, or wait until that run has ended."
    )
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


def test_a_lock_that_its_new_owner_has_not_yet_signed_is_looked_at_again(tmp_path: Path) -> None:
    (tmp_path / IN_USE).write_text(json.dumps(DEAD))
    with (tmp_path / IN_USE).open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        mine = json.dumps(DEAD | {"run": "mine"})
        sign = threading.Timer(0.01, (tmp_path / IN_USE).write_text, (mine,))
        sign.start()
        keep_out(tmp_path, "mine")
        sign.join()


def test_looking_who_has_the_lock_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            another(tmp_path, "mine")

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(20):
            lock = FolderLock(tmp_path, "mine")
            lock.take()
            lock.release()
    finally:
        stop.set()
        looking.join()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"host": 1}', b'{"host": "a", "process": 1e999, "since": ""}', b"[" * 9_000],
)
def test_a_damaged_lock_without_an_owner_is_taken(content: bytes, tmp_path: Path) -> None:
    (tmp_path / IN_USE).write_bytes(content)
    FolderLock(tmp_path).take()


def test_an_owners_odd_name_is_one_line_of_plain_text(tmp_path: Path) -> None:
    owner = {"host": "h\x1b[2J\nerror: all is lost", "process": 10**400, "since": "2026\x1b]0;\x07T" + 99 * "1"}
    (tmp_path / IN_USE).write_text(json.dumps(owner))
    with (tmp_path / IN_USE).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Taken) as refused:
            FolderLock(tmp_path).take()

    sentence = str(refused.value)
    assert sentence.isprintable()
    assert "on host h\\x1b[2J error: all is lost, since 2026\\x1b]0;\\x07 1" in sentence
    assert len(sentence) < 400 + len(str(tmp_path))
