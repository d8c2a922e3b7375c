"""A rank does not outlive the torchrun that started it, nor torchrun its launcher."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, trainer_command, trainer_env
from tests.processes import left_of

# A torchrun, or a launcher, that is killed as soon as its rank is ready, which does with SIGTERM as the word says.
TORCHRUN = """
import os, signal, subprocess, sys
if os.environ.get("DDP_LAUNCHER") == "its parent":
    os.environ["DDP_LAUNCHER"] = str(os.getpid())
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdout=subprocess.PIPE)
print(rank.stdout.readline().decode(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
RANK = """
import os, signal, sys, time
from trainer.process import parent
parent.LOOK_EVERY_S, parent.SAVE_WITHIN_S = 0.05, 0.05
if sys.argv[1] == "saves":
    signal.signal(signal.SIGTERM, lambda *_: (os.write(2, b"saved"), os._exit(75)))
if sys.argv[1] == "hangs":
    signal.signal(signal.SIGTERM, lambda *_: None)
parent.end_with_parent(os.environ, at_last=lambda: os.write(2, b"at last, "))
assert "DDP_LAUNCHER" not in os.environ  # or its children would end, whose parent is another
print("ready", flush=True)
for _ in range(2 if sys.argv[1] == "goes on" else 600):
    time.sleep(0.1)
os.write(2, b"at its end")
"""


GONE = "at last, error: {} has ended, and the training did not stop in time; start again to resume.\n"


@pytest.mark.parametrize(
    ("does", "env", "err"),
    [
        ("saves", {"TORCHELASTIC_RUN_ID": "none"}, "saved"),
        ("is still importing", {"TORCHELASTIC_RUN_ID": "none"}, ""),
        ("hangs", {"TORCHELASTIC_RUN_ID": "none"}, GONE.format("torchrun")),
        ("saves", {"DDP_LAUNCHER": "1"}, "saved"),
        ("hangs", {"DDP_LAUNCHER": "its parent"}, GONE.format("the launcher")),
        ("goes on", {"OMPI_COMM_WORLD_RANK": "0"}, "at its end"),
    ],
)
def test_a_process_ends_with_its_torchrun_or_launcher_and_with_no_other_parent(
    does: str, env: dict[str, str], err: str
) -> None:
    """Standard error ends when the rank does, for it is the last to have it open.  Launcher 1 was gone before."""
    ended = subprocess.run(
        [sys.executable, "-c", TORCHRUN, RANK, does], env=trainer_env(env), cwd=ROOT, capture_output=True, text=True,
        timeout=30,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, err)


@pytest.mark.slow("no rank outlives a launcher that is killed, and the run goes on from what they saved")
def test_a_training_ends_with_its_launcher(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "launch.local", "--nproc-per-node", "2"]
    words += trainer_command(tmp_path, "--epochs", "100000")[3:]
    job = subprocess.Popen(
        words, cwd=tmp_path, env=trainer_env({"TEST_JOB": str(tmp_path)}), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with job:
        assert job.stdout is not None
        next(line for line in job.stdout if line.startswith("epoch 1/"))
        os.kill(job.pid, signal.SIGKILL)
    assert left_of(f"TEST_JOB={tmp_path}", within_s=15.0) == []
    assert list((tmp_path / "run" / "checkpoints").glob("epoch*.pt"))
