"""Does a rank that is stopped and continued, as by Ctrl-Z or `docker pause`, train on?

python -m tests.bench.stops --stops 100 --stop-s 3 --ranks 1 2 --at-once 4
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import trainer_command, trainer_env

STALL_S = 1.0
# What a rank trains between two stops, and how long it may take to begin.
TRAINS_S, BEGINS_WITHIN_S = 0.7, 240.0
COLUMNS = ("ranks", "stops", "deaths", "reports of the stopped rank")


@dataclass
class Seen:
    """What happened in some trainings."""

    stops: int = 0
    deaths: int = 0
    reports: int = 0


def try_stops(stops: int, ranks: int, stop_s: float) -> Seen:
    """Stops the last rank so often; a training that dies is followed by another."""
    seen = Seen()
    while seen.stops < stops:
        with tempfile.TemporaryDirectory(prefix="stops-") as folder:
            _train(Path(folder), seen, stops, ranks, stop_s)
    return seen


def _train(folder: Path, seen: Seen, stops: int, ranks: int, stop_s: float) -> None:
    flags = ("--epochs", 100_000, "--stall-s", STALL_S, "--progress", "false", "--keep-checkpoints", 1)
    with (folder / "output").open("w") as output:
        job = subprocess.Popen(
            trainer_command(folder, *flags, ranks=ranks), env=trainer_env(), stdout=output, stderr=output
        )
    try:
        rank = _rank(folder, job, ranks)
        while seen.stops < stops and job.poll() is None:
            os.kill(rank, signal.SIGSTOP)
            time.sleep(stop_s)
            os.kill(rank, signal.SIGCONT)
            seen.stops += 1
            time.sleep(TRAINS_S)
    finally:
        seen.deaths += job.poll() is not None
        job.terminate()
        job.wait(60)
        said = (folder / "output").read_text(errors="replace")
        seen.reports += said.count("Timeout (0:") + said.count(f"rank {ranks - 1} of {ranks}: no new batch")


def _rank(folder: Path, job: "subprocess.Popen[bytes]", ranks: int) -> int:
    """The process of the last rank, once it has trained for a while."""
    end = time.monotonic() + BEGINS_WITHIN_S
    while "epoch 5/" not in (said := (folder / "output").read_text()):
        if time.monotonic() > end or job.poll() is not None:
            raise RuntimeError(f"the training did not begin:\n{said}")
        time.sleep(0.1)
    return job.pid if ranks == 1 else max(_children(job.pid))


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def main(argv: Sequence[str]) -> None:
    """Prints a row for each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=100, help="for each number of ranks")
    parser.add_argument("--stop-s", type=float, default=3.0)
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--at-once", type=int, default=1, help="trainings side by side")
    args = parser.parse_args(argv)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    shares = [len(range(first, args.stops, args.at_once)) for first in range(args.at_once)]
    for ranks in args.ranks:
        with ThreadPoolExecutor(args.at_once) as threads:
            all_seen = [*threads.map(lambda stops, ranks=ranks: try_stops(stops, ranks, args.stop_s), shares)]
        total = (sum(getattr(seen, name) for seen in all_seen) for name in ("stops", "deaths", "reports"))
        print(f"| {ranks} | " + " | ".join(map(str, total)) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
