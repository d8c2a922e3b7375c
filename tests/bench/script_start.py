"""Seconds from the command to the first line of a user's script: by launch.local, by trainer.script, and by torchrun.

python -m tests.bench.script_start [--rounds 9] [--ranks 1 2]
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
SCRIPT = "import os; os.write(1, b'first line\\n')\n"  # in one piece, also beside another rank's


def command(who: str, ranks: int, folder: Path) -> list[str]:
    """A command line that runs the script: with ours, with our torchrun alone, or with torch's."""
    several = ["--standalone", "--nproc-per-node", str(ranks)]
    script = str(folder / "x.py")
    if who == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", *several, script]
    if who == "launch.local":
        run = folder / f"run-{time.monotonic_ns()}"
        return [
            sys.executable,
            "-m",
            "launch.local",
            "--nproc-per-node",
            str(ranks),
            "--run-dir",
            str(run),
            "--script",
            script,
        ]
    ours = [sys.executable, "-m", "trainer.torchrun", *several]
    if who == "trainer.torchrun":
        return [*ours, script]
    return [*ours, "-m", "trainer.script", "--run-dir", str(folder / f"run-{time.monotonic_ns()}"), "--", script]


def seconds(words: Sequence[str]) -> tuple[float, float]:
    """Wall seconds from the start of a command to its first line on standard output, and processor seconds in all."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, began = os.times(), time.perf_counter()
    with subprocess.Popen(
        words, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.perf_counter() - began
        process.stdout.read()
    assert (line, process.returncode) == ("first line\n", 0)
    after = os.times()
    return took, after.children_user - before.children_user + after.children_system - before.children_system


def compare(ranks: int, rounds: int) -> None:
    """Runs all in turn; prints medians, and the median of the differences of what ran side by side."""
    taken: dict[str, list[tuple[float, float]]] = {
        who: [] for who in ("torchrun", "trainer.torchrun", "trainer.script", "launch.local")
    }
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        (folder / "x.py").write_text(SCRIPT)
        for who in taken:
            seconds(command(who, ranks, folder))  # the first time, Python compiles
        for _ in range(rounds):
            for who, times in taken.items():
                times.append(seconds(command(who, ranks, folder)))
    say(f"{ranks} rank{'s' if ranks > 1 else ''}, load {os.getloadavg()[0]:.1f}")
    for column, what in enumerate(("wall to the first line", "processor in all")):
        plain = [row[column] for row in taken["torchrun"]]
        for who, rows in taken.items():
            mine = [row[column] for row in rows]
            more = statistics.median(ours - theirs for ours, theirs in zip(mine, plain, strict=True))
            ratio = statistics.median(ours / theirs for ours, theirs in zip(mine, plain, strict=True))
            beside = "" if who == "torchrun" else f"   {more:+.2f} s, {ratio:.2f} of torchrun"
            say(f"  {what:<23} {who:<17} {statistics.median(mine):5.2f} s (best {min(mine):.2f}){beside}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    say(f"{machine()}; medians of {given.rounds} pairs, in turn")
    for ranks in given.ranks:
        compare(ranks, given.rounds)


if __name__ == "__main__":
    main()
