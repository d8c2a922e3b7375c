"""The examples of infra/examples: as modules, as commands, and as ranks that have torch already."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests import warm
from tests.conftest import ROOT
from tests.processes import left_of
from trainer.script.relay import MetricLines

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


def run(words: list[str], mark: str) -> tuple[int, str]:
    """The exit code of the command, and what it printed; none of its processes, which are marked, is left behind."""
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "MARK": mark}
    ended = subprocess.run(
        words, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert left_of(f"MARK={mark}") == []
    return ended.returncode, ended.stdout


def undisturbed(name: str, run_dir: Path, *words: str) -> None:
    """Two ranks of an example to their end, as torchrun starts them: what a disturbed run is compared with.

    Forks that have torch already, each with one thread, as torchrun would have it: seconds quicker than a launcher.
    """
    run_dir.mkdir()
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(warm.free_port())}
    ranks = []
    for rank in range(2):
        env = {**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank), "DDP_RUN_DIR": str(run_dir)}
        ranks.append(warm.start(_rank, EXAMPLES / name / "train.py", words, run_dir / f"{rank}.txt", env=env))
    for process in ranks:
        process.join(timeout=120)
        assert process.exitcode == 0
    lines = MetricLines(run_dir / "metrics.jsonl", pytest.fail)
    lines.feed((run_dir / "0.txt").read_bytes())
    lines.close()


def _rank(script: Path, words: tuple[str, ...], output: Path) -> None:
    torch.set_num_threads(1)
    sys.argv = [str(script), *words]
    with output.open("w") as sys.stdout:
        runpy.run_path(str(script), run_name="__main__")
