"""torchrun with our exit codes, on real torchrun agents and workers that take no time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, trainer_env
from tests.processes import is_alive, left_of
from tests.warm import Job, free_port
from trainer.torchrun import Death, cause, failed_leaving

# Rank N does what word N says: ends with that code, kills itself with that signal, raises, or waits for SIGTERM and
# saves; or waits for SIGTERM and then ends with the code or signal that stands behind "wait:".
# None ends before those that wait have begun to.
WORKER = """
import os, signal, sys, time
word, _, then = sys.argv[1 + int(os.environ["RANK"])].partition(":")
def save(signum, frame):
    if then.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[then])
    while then == "hang":
        time.sleep(1)
    os._exit(int(then or 75))
if word == "wait":
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGUSR1, save)
    signal.signal(signal.SIGINT, save)
    os.write(1, b"waiting\\n")  # in one piece, for there are two of us
    open("WAITING", "w").close()
    time.sleep(60)
while any("wait" in word for word in sys.argv) and not os.path.exists("WAITING"):
    time.sleep(0.01)
if word == "raise":
    raise RuntimeError("boom")
if word.startswith("SIG"):
    os.kill(os.getpid(), signal.Signals[word])
sys.exit(int(word))
"""


def flags(folder: Path, *words: str) -> list[str]:
    worker = folder / "worker.py"
    worker.write_text(WORKER.replace("WAITING", str(folder / "waiting")))
    return ["--standalone", "--nproc-per-node", str(len(words)), str(worker), *words]


def start(folder: Path, *flags: str) -> Job:
    """torchrun in a process that has imported torch already."""
    env = trainer_env({"TMPDIR": str(folder), "TEST_JOB": str(folder)})
    return Job(flags, folder, [env], "trainer.torchrun")


def run(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code and all output of ranks that do as `words` say."""
    job = start(folder, *flags(folder, *words))
    out, err = job.communicate(timeout=60)
    return job.returncode, out + err


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        pytest.param(("0", "0"), 0, "", id="end well"),
        pytest.param(("wait", "2"), 2, "waiting\n", id="one fails"),
        pytest.param(("75", "75"), 75, "", id="saved and left"),
        pytest.param(("SIGUSR1", "SIGUSR1"), 75, "", id="asked before they listened"),
    ],
)
def test_the_code_of_the_ranks_is_ours_and_nothing_is_added(
    words: tuple[str, ...], code: int, output: str, tmp_path: Path
) -> None:
    assert run(tmp_path, *words) == (code, output)
    assert {path.name for path in tmp_path.iterdir()} <= {"worker.py", "waiting"}


def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    assert run(tmp_path, "0", "SIGKILL") == (6, KILLED.format("SIGKILL", MEMORY))


def test_a_rank_that_raises_is_named_below_its_own_traceback(tmp_path: Path) -> None:
    code, output = run(tmp_path, "raise", "0")

    assert code == 1
    assert output.splitlines()[-2:] == [
        "RuntimeError: boom",
        "error: rank 0 ended with exit code 1; its own output is above.",
    ]
    assert output.count("Traceback") == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_launcher_ends_it_quietly(tmp_path: Path, signum: signal.Signals) -> None:
    job = start(tmp_path, *flags(tmp_path, "wait", "wait"))
    assert [job.stdout.readline() for _ in range(2)] == ["waiting\n", "waiting\n"]

    job.send_signal(signum)

    assert job.communicate(timeout=30) == ("", "")
    assert job.returncode == 75  # the workers have saved


KILLED = "error: rank 1 was killed by {0}{1}. Start again to resume.\n"
MEMORY = "; the usual reason is too little memory"


@pytest.mark.parametrize(
    ("words", "signum", "code", "err"),
    [
        (("wait:75", "wait:SIGKILL"), signal.SIGTERM, 6, KILLED.format("SIGKILL", MEMORY)),
        (("wait:75", "wait:SIGSEGV"), signal.SIGINT, 6, KILLED.format("SIGSEGV", "")),
        (("wait:75", "wait:7"), signal.SIGTERM, 7, ""),  # a full disk, which the rank itself has reported
        (("wait:75", "wait:130"), signal.SIGINT, 130, ""),
    ],
)
def test_a_rank_that_fails_on_exit_is_reported(
    words: tuple[str, ...], signum: signal.Signals, code: int, err: str, tmp_path: Path
) -> None:
    job = start(tmp_path, *flags(tmp_path, *words))
    assert [job.stdout.readline() for _ in words] == ["waiting\n", "waiting\n"]

    job.send_signal(signum)

    assert job.communicate(timeout=30) == ("", err)
    assert job.returncode == code


@pytest.mark.parametrize(
    ("codes", "failed"),
    [((75, 75), False), ((0, -15), False), ((6, -15), False), ((6, 75), True), ((-15, -9), True), ((75, 1), True)],
)
def test_a_lost_rank_is_no_failure_where_one_left_before_it_listened(codes: tuple[int, ...], failed: bool) -> None:
    assert failed_leaving(codes) is failed


def test_a_signal_while_workers_are_started_leaves_none_behind(tmp_path: Path) -> None:
    worker = tmp_path / "worker.sh"
    worker.write_text("#!/bin/sh\n[ $RANK = 0 ] && kill -TERM $PPID\nexec sleep 60\n")
    worker.chmod(0o755)

    job = start(tmp_path, "--standalone", "--nproc-per-node", "8", "--no-python", str(worker))
    job.communicate(timeout=50)

    assert job.returncode == 75
    assert left_of(f"TEST_JOB={tmp_path}") == []


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_while_torch_is_imported_is_as_quiet(tmp_path: Path, signum: signal.Signals, code: int) -> None:
    job = subprocess.Popen(
        [sys.executable, "-m", "trainer.torchrun", *flags(tmp_path, "0")], cwd=ROOT, env=trainer_env(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    with job:
        wait_until_it_handles(signal.SIGTERM, job.pid)
        assert "libtorch" not in Path(f"/proc/{job.pid}/maps").read_text()

        job.send_signal(signum)

        assert job.communicate(timeout=30)[0] == ""
        assert job.returncode == code


def wait_until_it_handles(signum: signal.Signals, pid: int) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        if caught >> (signum - 1) & 1:
            return
        os.sched_yield()
    pytest.fail(f"process {pid} never handled {signum.name}")


@pytest.mark.parametrize(
    ("deaths", "rank"),
    [
        pytest.param([Death(0, 5, 100)], 0, id="the only one"),
        pytest.param([Death(1, 5, 100), Death(0, 3, 100)], 1, id="the first seen of two"),
        pytest.param([Death(0, 75, 100), Death(1, 2, 100)], 1, id="not the one asked to leave"),
        pytest.param([Death(0, -15, 100), Death(1, 2, 101)], 1, id="not the one that torchrun ended"),
        pytest.param([Death(0, 6, 100), Death(1, -9, 100)], 1, id="not the one that lost a rank"),
        pytest.param([Death(0, 75, 100), Death(1, 6, 100)], 1, id="a lost rank before one asked to leave"),
        pytest.param([Death(0, 6, 100), Death(1, -9, 130)], 0, id="not the one killed because it hung afterwards"),
        pytest.param([Death(0, 75, 100), Death(1, 1, 110)], 0, id="not the one that stumbled while leaving"),
    ],
)
def test_the_cause_is_the_death_that_the_others_followed_from(deaths: list[Death], rank: int) -> None:
    assert cause(deaths).rank == rank


# Ends when the file is there; "at once" is.
LAST = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
# torchrun looks so seldom that a signal comes between the end of the workers and its notice of it.
SELDOM = ("--monitor-interval", "3")


def agent(folder: Path, *words: str) -> Job:
    (folder / "last.py").write_text(LAST)
    return start(folder, *words[:-1], str(folder / "last.py"), words[-1])


def workers_of(job: Job) -> list[int]:
    return [int(word) for word in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def wait_for_workers(job: Job, count: int) -> None:
    """Until `count` have been started."""
    wait_for(lambda: len(workers_of(job)) >= count)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_training_that_is_done_ends_with_0_whatever_signal_comes(tmp_path: Path, signum: signal.Signals) -> None:
    job = agent(tmp_path, "--standalone", "--nproc-per-node", "2", *SELDOM, str(tmp_path / "go"))
    wait_for_workers(job, 2)
    (tmp_path / "go").touch()
    wait_for(lambda: not any(is_alive(pid) for pid in workers_of(job)))

    job.send_signal(signum)

    assert job.communicate(timeout=30) == ("", "")
    assert job.returncode == 0


def pair(folder: Path, first: str, second: str, *seldom: str) -> tuple[Job, Job]:
    """Two nodes whose workers end once the file is there; the second looks `seldom` whether they have."""
    endpoint = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    nodes = (folder / "a", folder / "b")
    for node in nodes:
        node.mkdir()
    host = agent(nodes[0], *endpoint, "--rdzv-conf", "is_host=1", first)
    return host, agent(nodes[1], *endpoint, "--rdzv-conf", "is_host=0", *seldom, second)


@pytest.mark.slow("a node that is done and asked to leave lets the other end as done")
def test_a_node_that_is_done_and_asked_to_leave_lets_the_other_go(tmp_path: Path) -> None:
    go = str(tmp_path / "go")
    host, other = pair(tmp_path, go, go, *SELDOM)
    wait_for_workers(host, 1), wait_for_workers(other, 1)
    (tmp_path / "go").touch()
    wait_for(lambda: not any(is_alive(pid) for pid in workers_of(other)))

    other.send_signal(signal.SIGTERM)

    assert [job.communicate(timeout=30) for job in (other, host)] == [("", "")] * 2
    assert (host.returncode, other.returncode) == (0, 0)
