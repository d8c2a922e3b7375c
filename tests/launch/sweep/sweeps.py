"""Sweeps for the tests: small enough for seconds."""

import csv
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from launch.core.clock import Clock
from launch.core.runs import Run
from launch.sweep import loop
from launch.sweep.folder import Work
from launch.sweep.grid import parse
from launch.sweep.loop import Slot
from launch.sweep.planned import Planned, plan_runs
from launch.sweep.price import Price
from launch.sweep.runner import Context
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


def planned(count: int = 1, backend: str = "local", **options: object) -> list[Planned]:
    """So many runs, which differ in their seed."""
    content = {"name": "tiny", "backend": backend, "fixed": TINY, "options": {backend: options}}
    return plan_runs(parse({**content, "grid": {"seed": list(range(count))}}, "sweep.yaml"), {}, ())


def context_in(folder: Path, **more: Any) -> Context:
    return Context(
        "tiny", "id", folder, folder / "runs", os.environ, Clock(), False, **{"say": lambda line: None, **more}
    )


def play(
    folder: Path,
    all_runs: Sequence[Planned],
    *launchers: str,
    places: Sequence[Slot] = (Slot(()),),
    before: Mapping[str, Run] | None = None,
    **more: Any,
) -> list[Run]:
    """A sweep whose launchers are these lines of shell, one for each run; $1 is the run's folder."""
    shells = {run.name: launcher for run, launcher in zip(all_runs, launchers, strict=True)}

    def words(run: Planned, context: Context) -> list[str]:
        return ["sh", "-c", shells[run.name], "sh", str(context.folder(run))]

    known = before or {}
    work = Work(
        all_runs, [run for run in all_runs if run.name not in known], {run.name: Price() for run in all_runs}, known
    )
    return loop.sweep(work, context_in(folder, launcher=words, **more), places)
