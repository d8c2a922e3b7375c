"""Processor seconds from the command to the end of one step, beside a bare PyTorch script that does the same step.

python -m tests.bench.start_up [--rounds 7] [--ranks 1 2]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.report import machine, say

ROOT = Path(__file__).parents[2]
BARE = (str(Path(__file__).with_name("bare.py")),)
OURS = ("--model", "cnn", "--dataset", "digits", "--max-steps", "1", "--precision", "fp32")


def command(who: str, ranks: int, folder: Path) -> list[str]:
    """A command line of ours or of the bare script; what it keeps between starts is in folder/cache."""
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    several = ["--nproc-per-node", str(ranks)] if ranks > 1 else []
    if who == "bare":
        torchrun = ["-m", "torch.distributed.run", "--standalone", *several] if several else []
        return [sys.executable, *torchrun, *BARE, str(cache)]
    torchrun = ["-m", "trainer.torchrun", "--standalone", *several] if several else []
    run_dir = folder / f"run-{time.monotonic_ns()}"
    return [sys.executable, *torchrun, "-m", "trainer", *OURS, "--cache-dir", str(cache), "--run-dir", str(run_dir)]


def seconds(words: Sequence[str]) -> tuple[float, float]:
    """Seconds of processor and of wall time that a command takes, with all of its children."""
    before, began = os.times(), time.perf_counter()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(words, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after, ended = os.times(), time.perf_counter()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return spent, ended - began


def compare(ranks: int, rounds: int, *, warm: bool) -> None:
    """Runs both in turn and prints medians and the ratio."""
    taken: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}
    with tempfile.TemporaryDirectory() as kept:
        for who in taken if warm else ():
            seconds(command(who, ranks, Path(kept)))
        for _ in range(rounds):
            for who, times in taken.items():
                with tempfile.TemporaryDirectory() as fresh:
                    times.append(seconds(command(who, ranks, Path(kept if warm else fresh))))
    (bare, bare_wall), (ours, ours_wall) = (
        [statistics.median(column) for column in zip(*taken[who], strict=True)] for who in ("bare", "ours")
    )
    say(
        f"ranks {ranks}, {'warm' if warm else 'cold'} cache   processor: bare {bare:5.2f} s, ours {ours:5.2f} s, "
        f"{ours - bare:+.2f} s, ratio {ours / bare:.3f}   wall: {bare_wall:5.2f} s, {ours_wall:5.2f} s"
    )


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
