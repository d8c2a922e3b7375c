"""Processor seconds from the command to the end of one step, beside a bare PyTorch script that does the same step.

The bare script runs twice: as it is, and with threads that spin as briefly as the trainer's do.

python -m tests.bench.start_up [--rounds 7] [--ranks 1 2]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.report import machine, say

ROOT = Path(__file__).parents[2]
BARE = (str(Path(__file__).with_name("bare.py")),)
CALM = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}  # as trainer/__main__.py sets them
OURS = ("--model", "cnn", "--dataset", "digits", "--max-steps", "1", "--precision", "fp32")


def command(who: str, ranks: int, folder: Path) -> list[str]:
    """A command line of ours or of the bare script; what it keeps between starts is in folder/cache."""
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    several = ["--nproc-per-node", str(ranks)] if ranks > 1 else []
    if who != "ours":
        torchrun = ["-m", "torch.distributed.run", "--standalone", *several] if several else []
        return [sys.executable, *torchrun, *BARE, str(cache)]
    torchrun = ["-m", "trainer.torchrun", "--standalone", *several] if several else []
    run_dir = folder / f"run-{time.monotonic_ns()}"
    return [sys.executable, *torchrun, "-m", "trainer", *OURS, "--cache-dir", str(cache), "--run-dir", str(run_dir)]


def seconds(words: Sequence[str], more: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of processor and of wall time that a command takes, with all of its children."""
    before, began = os.times(), time.perf_counter()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        words, cwd=ROOT, env={**env, **more}, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    after, ended = os.times(), time.perf_counter()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return spent, ended - began


def compare(ranks: int, rounds: int, *, warm: bool) -> None:
    """Runs all three in turn and prints medians and how far ours is from each bare script."""
    envs: dict[str, Mapping[str, str]] = {"bare": {}, "bare, calm threads": CALM, "ours": {}}
    taken: dict[str, list[tuple[float, float]]] = {who: [] for who in envs}
    with tempfile.TemporaryDirectory() as kept:
        for who in envs if warm else ():
            seconds(command(who, ranks, Path(kept)), envs[who])
        for _ in range(rounds):
            for who, times in taken.items():
                with tempfile.TemporaryDirectory() as fresh:
                    times.append(seconds(command(who, ranks, Path(kept if warm else fresh)), envs[who]))
    medians = {who: [statistics.median(column) for column in zip(*times, strict=True)] for who, times in taken.items()}
    say(f"ranks {ranks}, {'warm' if warm else 'cold'} cache")
    for who, (spent, wall) in medians.items():
        more = "" if who == "ours" else f"   ours {medians['ours'][0] - spent:+.2f} s"
        say(f"  {who:<20} processor {spent:5.2f} s   wall {wall:5.2f} s{more}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    say(f"{machine()}; medians of {given.rounds}, in turn")
    for ranks in given.ranks:
        for warm in (True, False):
            compare(ranks, given.rounds, warm=warm)


if __name__ == "__main__":
    main()
