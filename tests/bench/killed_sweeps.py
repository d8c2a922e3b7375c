"""Sweeps of several runs at a time, killed with SIGKILL at random moments: what is lost, and what is done twice?

    python -m tests.bench.killed_sweeps [--backend local] [--kills 20] [--runs 6] [--epochs 8] [--parallel 2] [--seed 0]

Every run that was done at a kill must be as it was at the end, and every run must have each epoch once.  With slurm
the job arrays of a real Slurm of two nodes on this machine go on while their sweep is dead.  Every second kill is at a
random moment after the sweep has made its plan, the others after its start.
"""

import argparse
import csv
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import yaml

from tests.bench.report import machine, say
from tests.conftest import trainer_env
from tests.launch.slurm import cluster

FIXED = {
    "model": "cnn", "dataset": "synthetic", "synthetic_images": 512, "image_size": 16, "batch_size": 16,
    "precision": "fp32", "probe_steps": 0, "threads": 1, "plot": False, "device": "cpu",
}  # fmt: skip


def main() -> None:
    """Kills, resumes to the end, and says what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["local", "slurm"], default="local")
    for name, default in (("kills", 20), ("runs", 6), ("epochs", 8), ("parallel", 2), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--within-s", type=float, default=9.0, help="latest moment of a kill")
    given = parser.parse_args()
    moments = random.Random(given.seed)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        env = trainer_env({})
        if given.backend == "slurm":
            own = opened.enter_context(cluster.started())
            env = trainer_env({name: own.env[name] for name in ("SLURM_CONF", "PATH")})
        words = command(folder, given)
        done: dict[str, str] = {}
        changed, kills = 0, 0
        while kills < given.kills:
            after_s = moments.uniform(0.2, given.within_s)
            ended = killed_after(after_s, words, folder, env, at_work=kills % 2 == 1)
            now = finished(folder / "out")
            changed += sum(now.get(name) != digest for name, digest in done.items())
            done = now
            kills += not ended
            say(f"  kill {kills} after {after_s:.1f} s: {len(done)} of {given.runs} runs done" if not ended
                else f"  ended by itself, {len(done)} done")  # fmt: skip
            if ended:
                break
        last = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
        now = finished(folder / "out")
        changed += sum(now.get(name) != digest for name, digest in done.items())
        judge(folder / "out", given, changed, kills, last)


def command(folder: Path, given: argparse.Namespace) -> list[str]:
    """The sweep's command line; its file is written."""
    content = {"name": "killed", "backend": given.backend, "fixed": {**FIXED, "epochs": given.epochs},
               "options": {"slurm": {"time": "20", "cpus_per_task": 1}},
               "grid": {"seed": list(range(given.runs))}}  # fmt: skip
    (folder / "sweep.yaml").write_text(yaml.safe_dump(content))
    return [sys.executable, "-m", "launch.sweep", "sweep.yaml", "--out", "out", "--parallel", str(given.parallel)]


def killed_after(seconds: float, words: list[str], folder: Path, env: Mapping[str, str], *, at_work: bool) -> bool:
    """Whether the sweep ended before it was killed.  Only the sweep itself is; what it started stays.

    at_work: the seconds begin with the first run that it begins or follows.
    """
    (folder / "said.txt").unlink(missing_ok=True)
    with (folder / "said.txt").open("a") as said:
        process = subprocess.Popen(words, cwd=folder, env=dict(env), stdout=said, stderr=said)
        while at_work and process.poll() is None and "tail -f" not in (folder / "said.txt").read_text():
            time.sleep(0.1)
        try:
            process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(0.1)
            return False


def finished(out: Path) -> dict[str, str]:
    """The runs that the sweep has noted as done, with a digest of their records and weights."""
    found = {}
    for mark in sorted(out.glob("*/run.json")):
        if json.loads(mark.read_text())["state"] == "done":
            files = [mark.parent / "metrics.jsonl", mark.parent / "model.pt"]
            content = b"".join(file.read_bytes() for file in files if file.exists())
            found[mark.parent.name] = hashlib.sha256(content).hexdigest()
    return found


def judge(
    out: Path, given: argparse.Namespace, changed: int, kills: int, last: "subprocess.CompletedProcess[str]"
) -> None:
    """Says what is there and what is not."""
    with (out / "runs.csv").open(newline="") as file:
        rows = [row["name"] for row in csv.DictReader(file) if row["state"] == "done"]
    epochs = [
        [json.loads(line)["epoch"] for line in mark.read_text().splitlines()] for mark in out.glob("*/metrics.jsonl")
    ]
    whole = sum(one == list(range(1, given.epochs + 1)) for one in epochs)
    ids = [json.loads(mark.read_text())["ids"] for mark in out.glob("*/job.json")]
    arrays = {one.partition("_")[0] for own in ids for one in own}
    say(f"{given.backend}, {given.parallel} at a time, killed {kills} times: last exit code {last.returncode}, "
        f"{len(set(rows))} of {given.runs} rows done, {len(rows) - len(set(rows))} twice, {whole} runs with every "
        f"epoch once, {changed} finished runs changed by a later start"
        f"{f', {sum(map(len, ids))} tasks in {len(arrays)} arrays' if ids else ''}   ({machine()})")  # fmt: skip
    if last.returncode:
        say(last.stdout + last.stderr)


if __name__ == "__main__":
    main()
