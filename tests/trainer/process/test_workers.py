"""torchrun starts our own ranks as forks that have imported torch, and everything else as it always does."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from trainer.process.forks import Fork, Server, serve
from trainer.process.workers import serve_forks, start_as_forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="on Linux only do processes adopt others")

SAYS = "import os, sys; print('rank', os.environ['RANK'], *sys.argv[1:]); os._exit(3)\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """torchrun's workers are its forks, where they can be; module `job` and script job.py are in this folder."""
    (tmp_path / "job.py").write_text(SAYS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(SubprocessHandler, "_popen", SubprocessHandler._popen)  # what is changed is put back
    begun = serve(lambda: None)
    assert begun is not None
    start_as_forks(begun)
    yield begun
    begun.close()


def started(*words: str) -> SubprocessHandler:
    """What torchrun starts for `python words...` as rank 5, with its output in a file."""
    out = str(Path("out").resolve())
    handler = SubprocessHandler(sys.executable, words, {"RANK": "5"}, out, None, local_rank_id=0, numa_options=None)
    assert handler._stdout is not None
    handler._stdout.close()
    return handler


def test_a_module_is_a_fork(server: Server, tmp_path: Path) -> None:
    handler = started("-u", "-m", "job", "--lr", "0.1")

    assert isinstance(handler.proc, Fork)
    assert handler.proc.wait(20) == 3
    assert (tmp_path / "out").read_text() == "rank 5 --lr 0.1\n"


@pytest.mark.parametrize("words", [("-u", "job.py"), ("job.py",)])
def test_a_script_is_a_process_as_ever(server: Server, tmp_path: Path, words: tuple[str, ...]) -> None:
    handler = started(*words)

    assert isinstance(handler.proc, subprocess.Popen)
    assert handler.proc.wait(20) == 3


def test_where_the_server_is_gone_a_module_is_a_process_as_ever(server: Server, tmp_path: Path) -> None:
    os.kill(server.pid, 9)
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)

    handler = started("-u", "-m", "job")

    assert isinstance(handler.proc, subprocess.Popen)
    assert handler.proc.wait(20) == 3
    assert (tmp_path / "out").read_text() == "rank 5\n"


def test_modules_of_others_are_never_forked() -> None:
    """While they are imported they may start threads, or CUDA, which do not survive it."""
    assert serve_forks("theirs.train") is None
    assert serve_forks("trainers") is None
