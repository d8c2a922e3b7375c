"""One run at a time writes to a folder, and a dead one's lock stands in nobody's way."""

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
from trainer.process import folder_lock
from trainer.process.folder_lock import IN_USE, FolderLock, Owner, Taken, keep_out


def nobody(owner: Owner) -> None:
    raise AssertionError(f"{owner} took the folder over")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners touch their locks, and others look at them, many times a second."""
    monkeypatch.setattr(folder_lock, "TOUCH_EVERY_S", 0.02)
    monkeypatch.setattr(folder_lock, "LOOK_EVERY_S", 0.02)


@pytest.fixture
def no_kernel_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Lustre that is mounted without them."""

    def refuse(file: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)


def left_by_another_host(folder: Path, age_s: float = 0.0) -> None:
    owner = {"host": "gone", "process": 42, "since": "2026-11-22T18:20:03.5+00:00"}
    (folder / IN_USE).write_text(json.dumps(owner))
    os.utime(folder / IN_USE, (time.time() - age_s,) * 2)


def take_and_hold(folder: Path, taken: Any) -> None:
    FolderLock(folder, nobody).take()
    taken.put(os.getpid())
    time.sleep(120)


def test_a_second_run_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    taken = warm.queue()
    first = warm.start(take_and_hold, tmp_path, taken)
    number = taken.get(timeout=30)

    with pytest.raises(Taken) as refused:
        FolderLock(tmp_path, nobody).take()

    since = json.loads((tmp_path / IN_USE).read_text())["since"][:19].replace("T", " ")
    assert str(refused.value) == (
        f"{tmp_path} is in use by process {number} on host {socket.gethostname()}, since {since} UTC; "
        "give another folder, or wait until that run has ended."
    )
    assert refused.value.code == 6

    os.kill(number, signal.SIGKILL)
    first.join(timeout=10)
    began = time.monotonic()
    FolderLock(tmp_path, nobody).take()  # a dead one's is taken over at once
    assert time.monotonic() - began < 5


def test_the_folder_of_a_run_that_has_ended_is_free_and_clean(tmp_path: Path) -> None:
    for _ in range(2):
        lock = FolderLock(tmp_path, nobody)
        lock.take()
        lock.release()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick", "no_kernel_locks")
def test_on_another_host_a_run_that_lives_is_seen_without_locks_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FolderLock(tmp_path, nobody)
    first.take()
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    with pytest.raises(Taken, match=f"process {os.getpid()} on host "):
        FolderLock(tmp_path, nobody).take()
    first.release()
    FolderLock(tmp_path, nobody).take()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("age_s", [0.0, 3600.0])
def test_a_run_that_died_on_another_host_is_taken_over(
    age_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "DEAD_AFTER_S", 0.3 if age_s == 0 else 60.0)
    left_by_another_host(tmp_path, age_s)
    lock = FolderLock(tmp_path, nobody)
    lock.take()
    assert json.loads((tmp_path / IN_USE).read_text())["process"] == os.getpid()
    lock.release()


def test_processes_beside_the_owner_go_on_unless_another_run_lives(tmp_path: Path) -> None:
    keep_out(tmp_path, "mine")  # nobody has it
    left_by_another_host(tmp_path, age_s=60.0)
    keep_out(tmp_path, "mine")  # its owner is dead
    lock = FolderLock(tmp_path, nobody, "mine")
    lock.take()
    keep_out(tmp_path, "mine")

    with pytest.raises(Taken):
        keep_out_beside_the_living(tmp_path, "another")
    lock.release()


def keep_out_beside_the_living(folder: Path, run: str) -> None:
    """Until its owner shows that it lives."""
    toucher = threading.Timer(0.06, os.utime, (folder / IN_USE,))
    toucher.start()
    try:
        keep_out(folder, run)
    finally:
        toucher.join()


def test_beside_the_lock_of_a_dead_run_it_waits_for_its_own_first_process(tmp_path: Path) -> None:
    """Which takes it over: a killed run is started again in the same folder."""
    left_by_another_host(tmp_path)
    taker = threading.Timer(0.06, os.replace, (tmp_path / "mine", tmp_path / IN_USE))
    (tmp_path / "mine").write_text(json.dumps({"host": "h", "process": 1, "since": "now", "run": "mine"}))
    taker.start()

    keep_out(tmp_path, "mine")

    assert json.loads((tmp_path / IN_USE).read_text())["run"] == "mine"
    taker.join()


def test_a_takeover_between_two_looks_is_no_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_by_another_host(tmp_path)
    look, looks = folder_lock._touched_ns, []

    def taken_over_at_the_second_look(folder: Path) -> int:
        looks.append(folder)
        if len(looks) == 2:
            mine = {"host": "h", "process": 1, "since": "now", "run": "mine"}
            (folder / IN_USE).write_text(json.dumps(mine))
        return look(folder)

    monkeypatch.setattr(folder_lock, "_touched_ns", taken_over_at_the_second_look)

    keep_out(tmp_path, "mine")

    assert len(looks) == 2


def test_who_may_not_wait_takes_nothing_over_from_a_host_that_may_live(tmp_path: Path) -> None:
    left_by_another_host(tmp_path)
    with pytest.raises(Taken, match="process 42 on host gone, since 2026-11-22 18:20:03 UTC"):
        FolderLock(tmp_path, nobody).take(may_wait=False)


@pytest.mark.usefixtures("quick", "no_kernel_locks")
def test_a_run_that_stood_still_until_another_took_over_learns_it(tmp_path: Path) -> None:
    heard: list[Owner] = []
    told = threading.Event()

    def hear(owner: Owner) -> None:
        heard.append(owner)
        told.set()

    stood_still = FolderLock(tmp_path, hear)
    stood_still.take()
    left_by_another_host(tmp_path)
    assert told.wait(timeout=10)
    stood_still.release()
    assert heard[0].host == "gone"
    assert (tmp_path / IN_USE).exists()  # it is the other's now


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"host": 1}', b'{"host": "a", "process": 1e999, "since": ""}', b"[" * 9_000],
)
def test_a_damaged_lock_of_nobody_is_taken(content: bytes, tmp_path: Path) -> None:
    (tmp_path / IN_USE).write_bytes(content)
    FolderLock(tmp_path, nobody).take()


def test_what_a_link_in_its_place_leads_to_is_not_emptied(tmp_path: Path) -> None:
    """A run folder that came in an archive is gone on with like any."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / IN_USE).symlink_to(tmp_path / "precious")

    with pytest.raises(OSError, match=r"symbolic links"):
        FolderLock(tmp_path / "run", nobody).take()
    assert (tmp_path / "precious").read_text() == "kept"


def test_what_a_stranger_wrote_as_the_owners_name_is_one_line_of_plain_text(tmp_path: Path) -> None:
    owner = {"host": "h\x1b[2J\nerror: all is lost", "process": 10**400, "since": "2026\x1b]0;\x07T" + 99 * "1"}
    (tmp_path / IN_USE).write_text(json.dumps(owner))
    with (tmp_path / IN_USE).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Taken) as refused:
            FolderLock(tmp_path, nobody).take()

    told = str(refused.value)
    assert told.isprintable()
    assert "on host h\\x1b[2J error: all is lost, since 2026\\x1b]0;\\x07 1" in told
    assert len(told) < 400 + len(str(tmp_path))
