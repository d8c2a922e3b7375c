"""Weak scaling on one CPU machine: two ranks of one thread against one rank of one thread, in turn.

Efficiency is the images per second of two ranks over twice those of one, at the same batch per rank.

    python -m tests.bench.weak_scaling [--model resnet18] [--batch-size 64] [--steps 8] [--rounds 3] [--precision fp32]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.report import machine, say
from trainer.metrics.log import read_records


def measure(ranks: int, given: argparse.Namespace) -> dict[str, Any]:
    """The second epoch's record of a run of `ranks` processes with a thread each."""
    with tempfile.TemporaryDirectory() as folder:
        images = given.batch_size * given.steps * ranks
        command = [
            *(sys.executable, "-m", "trainer.torchrun", "--standalone", "--nproc-per-node", str(ranks)),
            *("-m", "trainer"),
            *("--model", given.model, "--dataset", "synthetic", "--synthetic-images", str(images), "--device", "cpu"),
            *("--batch-size", str(given.batch_size), "--precision", given.precision, "--comm-hook", given.comm_hook),
            *("--epochs", "2", "--eval-every", "2", "--threads", "1", "--run-dir", folder, "--no-plot"),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        return read_records(Path(folder) / "metrics.jsonl")[1]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=64, help="per rank")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--comm-hook", default="none")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ratios = []
    for _ in range(given.rounds):
        one, two = measure(1, given), measure(2, given)
        ratios.append(two["images_per_s"] / (2 * one["images_per_s"]))
        say(
            f"one rank {one['images_per_s']:.1f}, two {two['images_per_s']:.1f} images/s, efficiency {ratios[-1]:.3f}; "
            f"communication {two['communication_ms']:.0f} of {two['step_ms']:.0f} ms a step, "
            f"all-reduce {two['all_reduce_gb_per_s']:.2f} GB/s"
        )
    what = f"{given.model}, {given.precision}, batch {given.batch_size} per rank"
    say(f"{what}: median efficiency {statistics.median(ratios):.3f}   ({machine()})")


if __name__ == "__main__":
    main()
