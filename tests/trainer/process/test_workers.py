"""torchrun starts our own ranks as forks that have imported torch, and everything else as it always does."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from tests import needs
from tests.conftest import trainer_env
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


# NVIDIA's driver library, as far as something would have to call it to begin: it notes each call.
DRIVER = """
#include <fcntl.h>
#include <unistd.h>
static int note(void) { close(open("called", O_CREAT | O_WRONLY, 0600)); return 100; }
int cuInit(unsigned flags) { return note(); }
int cuDriverGetVersion(int *version) { return note(); }
int cuGetProcAddress_v2(const char *name, void **at, int version, unsigned long flags, void *status) { return note(); }
"""
BEFORE_THE_FORK = "from torch.distributed import run; import trainer.run"


@needs.programs("gcc", packages="gcc libc6-dev")
@pytest.mark.parametrize(("then", "is_called"), [("", False), ("import torch; torch.cuda.is_available()", True)])
def test_what_a_server_has_imported_has_not_touched_cuda(tmp_path: Path, then: str, is_called: bool) -> None:
    """CUDA does not survive a fork once it is initialized.  The second case shows that a call would be noted.

    https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#poison-fork-note
    """
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libcuda.so.1", "driver.c"], cwd=tmp_path, check=True)
    env = trainer_env({"LD_LIBRARY_PATH": str(tmp_path)})
    env.pop("CUDA_VISIBLE_DEVICES")  # which the tests empty

    subprocess.run([sys.executable, "-c", f"{BEFORE_THE_FORK}; {then}"], cwd=tmp_path, env=env, check=True)

    assert (tmp_path / "called").exists() == is_called
