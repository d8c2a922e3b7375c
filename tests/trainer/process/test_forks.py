"""A process that `python -m MODULE` would have started, as a fork of one that has imported torch."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, trainer_env
from tests.processes import left_of
from trainer.process.forks import Command, Server, serve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="on Linux only do processes adopt others")

# Written as module `job`: does what its first word says.
MODULE = """
import json, os, signal, sys, time
word, *rest = sys.argv[1:]
if word == "look":
    print("half a line", end="")
    seen = {
        "name": __name__, "words": rest, "env": dict(os.environ), "session": os.getsid(0) == os.getpid(),
        "parent": os.getppid(), "usr1": signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL,
        "int": signal.getsignal(signal.SIGINT) == signal.default_int_handler, "imported": "textwrap" in sys.modules,
    }
    open("seen", "w").write(json.dumps(seen))
    os._exit(0)
if word == "exit":
    sys.exit({"": None}.get(rest[0], int(rest[0]) if rest[0].isdigit() else rest[0]))
if word == "raise":
    raise RuntimeError("boom")
os.write(1, b"waiting\\n")
time.sleep(600)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Its forks run in tmp_path, where module `job` is."""
    (tmp_path / "job.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("textwrap", None)
    begun = serve(lambda: __import__("textwrap"))
    assert begun is not None
    yield begun
    begun.close()


def test_it_is_a_process_of_its_own_with_what_it_was_given(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.touch()

    fork = server.start(Command("job", ["look", "a b", "-x"], {"ONLY": "this"}, stdout=str(out)))

    assert fork is not None
    assert fork.wait(20) == 0
    assert out.read_text() == "half a line"  # unbuffered, as by `python -u`
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen.pop("env").items() >= {"ONLY": "this"}.items()
    assert seen == {
        "name": "__main__", "words": ["a b", "-x"], "session": True, "parent": os.getpid(), "usr1": True, "int": True,
        "imported": True,
    }  # fmt: skip


def test_nothing_of_this_environment_is_in_it(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTER", "the server was forked")

    fork = server.start(Command("job", ["look"], {}))

    assert fork is not None
    fork.wait(20)
    assert json.loads((tmp_path / "seen").read_text())["env"] == {}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["exit", ""], 0, ""),
        (["exit", "75"], 75, ""),
        (["exit", "why"], 1, "why\n"),
        (["raise"], 1, "RuntimeError: boom\n"),
    ],
)
def test_it_ends_with_the_code_that_python_would_end_with(
    server: Server, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    err = tmp_path / "err"
    err.touch()

    fork = server.start(Command("job", words, {}, stderr=str(err)))

    assert fork is not None
    assert fork.wait(20) == fork.poll() == code
    assert err.read_text().endswith(said)


def test_it_is_waited_for_and_signalled_as_if_it_had_been_started_here(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "out"
    os.mkfifo(out)
    heard = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    fork = server.start(Command("job", ["wait"], {}, stdout=str(out)))
    assert fork is not None

    assert fork.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.0)
    os.set_blocking(heard, True)
    assert os.read(heard, 100) == b"waiting\n"
    os.killpg(fork.pid, signal.SIGTERM)

    assert fork.wait(20) == -signal.SIGTERM
    fork.send_signal(signal.SIGTERM)  # which nobody hears
    os.close(heard)


def test_signals_to_everybody_at_the_terminal_leave_the_server_be(server: Server) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        os.kill(server.pid, signum)

    fork = server.start(Command("job", ["exit", "0"], {}))

    assert fork is not None
    assert fork.wait(20) == 0


def refuses_a_file(server: Server, tmp_path: Path) -> Command:
    return Command("job", ["exit", "0"], {}, stdout=str(tmp_path / "no folder/out"))


def is_gone(server: Server, tmp_path: Path) -> Command:
    os.kill(server.pid, signal.SIGKILL)
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    return Command("job", ["exit", "0"], {})


@pytest.mark.parametrize("trouble", [refuses_a_file, is_gone])
def test_what_cannot_be_started_is_none(
    server: Server, tmp_path: Path, trouble: Callable[[Server, Path], Command]
) -> None:
    running = server.start(Command("job", ["wait"], {}))  # has the server's pipes open, if anybody has
    assert running is not None

    assert server.start(trouble(server, tmp_path)) is None

    running.send_signal(signal.SIGKILL)
    running.wait(20)


# Forks a server while a file is open, and has it run module `files`, which tells what files it has.
OPENED = """
import os
from trainer.process.forks import Command, serve
with open("files.py"):
    server = serve(lambda: None)
assert server.start(Command("files", [], dict(os.environ))).wait(20) == 0
server.close()
"""
FILES = "import os; os.write(1, ' '.join(os.listdir('/proc/self/fd')).encode())"


def test_of_open_files_it_has_what_a_new_process_would_have(tmp_path: Path) -> None:
    """Not the server's pipes, from which it could take what is meant for others, nor files of whoever asks.

    In a process of its own: what tests have imported may open files of its own after each fork.
    """
    (tmp_path / "files.py").write_text(FILES)
    env = trainer_env() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}

    ended = subprocess.run([sys.executable, "-c", OPENED], cwd=tmp_path, env=env, stdout=subprocess.PIPE, check=True)

    listed = {int(word) for word in ended.stdout.split()}
    assert len(listed - {0, 1, 2}) == 1  # that of the folder which it lists


def test_one_that_nobody_adopts_ends(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a signal comes while it is started: as init's child it would train for nobody."""
    monkeypatch.setattr("trainer.process.forks._adopt", lambda whether: True)

    assert server.start(Command("job", ["look"], {}, stdout=os.devnull)) is None

    assert not (tmp_path / "seen").exists()


PARENT = """
import os, signal, sys
from trainer.process.forks import Command, serve
fork = serve(lambda: None).start(Command("job", ["wait"], dict(os.environ)))
print(fork.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_server_ends_with_its_parent(tmp_path: Path) -> None:
    """The fork does not by itself: a rank looks who its parent is."""
    (tmp_path / "job.py").write_text(MODULE)
    mark = f"TEST_MARK={tmp_path}"
    env = trainer_env(dict([mark.split("=")])) | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}

    with (tmp_path / "said").open("w") as said:  # no pipe: the fork would keep it open
        subprocess.run([sys.executable, "-c", PARENT], env=env, cwd=tmp_path, stdout=said)

    (fork,) = (int(word) for word in (tmp_path / "said").read_text().split() if word.isdigit())
    end = time.monotonic() + 10
    while left_of(mark, 0.0) != [fork] and time.monotonic() < end:
        time.sleep(0.01)
    assert left_of(mark, 0.0) == [fork]
    os.kill(fork, signal.SIGKILL)
