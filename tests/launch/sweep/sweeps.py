"""Sweeps for the tests: small enough for seconds."""

import csv
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT, trainer_env
from trainer.outcome import Outcome, state_of

TINY: dict[str, Any] = {
    "model": "cnn", "dataset": "synthetic", "synthetic_images": 64, "image_size": 8, "batch_size": 8,
    "precision": "fp32", "epochs": 1, "probe_steps": 0, "threads": 1, "plot": False,
}  # fmt: skip
COMMAND = [sys.executable, "-m", "launch.sweep"]
PRESETS = sorted(path.stem for path in (ROOT / "infra" / "sweeps").glob("*.yaml"))


def written(folder: Path, **content: Any) -> Path:
    """A sweep's file; TINY is fixed unless it says otherwise."""
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "tiny", "fixed": TINY, **content}))
    return path


def start(folder: Path, *words: object, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, *map(str, words)], cwd=folder, env=trainer_env(env), text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def sweep(folder: Path, *words: object, within_s: float = 180) -> "subprocess.CompletedProcess[str]":
    """Runs `python -m launch.sweep words...` to its end."""
    process = start(folder, *words)
    out, err = process.communicate(timeout=within_s)
    return subprocess.CompletedProcess(COMMAND, process.returncode, out, err)


def rows(out: Path) -> dict[str, dict[str, str]]:
    """The lines of runs.csv, by name."""
    with (out / "runs.csv").open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def ends(code: int, reason: str = "", usd: float | None = None) -> str:
    """A launcher's last words in sh: it writes its outcome for the run folder $1, and exits."""
    outcome = Outcome(state_of(code), code, reason, usd=usd)
    return f"mkdir -p $1/launcher; echo {shlex.quote(outcome.as_json())} > $1/launcher/outcome.json; exit {code}"
