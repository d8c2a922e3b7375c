"""The examples of infra/examples as modules, and as commands in processes of their own."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tests.conftest import ROOT
from tests.processes import left_of, processes_with

EXAMPLES = ROOT / "infra" / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def command(name: str, run_dir: Path, *words: str, ranks: int = 2, processes: str = "torchrun") -> list[str]:
    """What starts an example on this machine: torchrun of trainer.script, as every launcher does."""
    return [
        sys.executable, "-m", "trainer.torchrun", "--standalone", "--nproc-per-node", str(ranks),
        "-m", "trainer.script", "--run-dir", str(run_dir), "--processes", processes,
        "--", str(EXAMPLES / name / "train.py"), *words,
    ]  # fmt: skip


@contextmanager
def started(words: list[str], mark: str) -> Iterator["subprocess.Popen[str]"]:
    """The command as it runs, with all its processes marked; none of them is left behind."""
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "MARK": mark}
    process = subprocess.Popen(words, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        kill(mark)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        assert left_of(f"MARK={mark}") == []


def kill(mark: str) -> None:
    """Ends them all at once and without a word, as a lost node does."""
    for pid in processes_with(f"MARK={mark}"):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue


def run(words: list[str], mark: str) -> tuple[int, str]:
    """The exit code of the command, and what it printed."""
    with started(words, mark) as process:
        output, _ = process.communicate()
        return process.returncode, output
