"""Processor time of one training step: ours, a bare PyTorch loop, and four other loops, in turn, in one process.

All train the trainer's `cnn` with SGD on the same tensors of 32 px on one thread.  Ours does all that
`python -m trainer` does: it watches the loss, counts right answers, times its phases and looks for signals.
The others are as their documents show them, without loggers and progress bars: Lightning's Trainer, Accelerate's
loop, timm's optimizer, scheduler and meters, and the steps of torchvision's references/classification/train.py,
which reads loss and accuracy off every batch.

The other frameworks belong to this bench alone, in a venv of its own; those that are missing are left out:

    python -m venv /tmp/bench && /tmp/bench/bin/pip install -c constraints.txt -e . timm==1.0.30 lightning==2.6.6 \\
        accelerate==1.15.0
    /tmp/bench/bin/python -m tests.bench.loop_overhead [--steps 40] [--rounds 9] [--starts 3]

On a GPU it is the time of the wall, and the tensors are there from the start:

    ... -m tests.bench.loop_overhead --device cuda --model resnet18 --batch-size 512 --starts 0
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch

from tests.bench.loops import ARMS, SIDE, Setting
from tests.bench.report import machine, say


def compare(setting: Setting, steps: int, rounds: int) -> None:
    """Prints the median milliseconds of each arm, and the median of its ratios to the bare loop beside it."""
    blocks = {name: make(setting) for name, (make, package) in ARMS.items() if find_spec(package)}
    for block in blocks.values():
        block(3)
    taken: dict[str, list[float]] = {name: [] for name in blocks}
    for turn in range(rounds):
        names = list(blocks) if turn % 2 else list(blocks)[::-1]  # the machine drifts
        for name in names:
            taken[name].append(blocks[name](steps) / steps * 1e3)
    say(f"{setting.precision}, checkpoints {'on' if setting.folder else 'off'}")
    for name, times in taken.items():
        ratio = statistics.median(mine / theirs for mine, theirs in zip(times, taken["bare"], strict=True))
        say(f"  {name:<12} {statistics.median(times):6.2f} ms a step   {ratio:.3f} of bare")


def compare_starts(starts: int) -> None:
    """Prints the processor seconds from the start of Python to the end of the first step of each arm."""
    taken: dict[str, list[float]] = {name: [] for name, (_, package) in ARMS.items() if find_spec(package)}
    for _ in range(starts):
        for name, times in taken.items():
            before = os.times()
            subprocess.run([sys.executable, "-m", "tests.bench.loop_overhead", "--first-step-of", name], check=True)
            after = os.times()
            times.append(after.children_user - before.children_user + after.children_system - before.children_system)
    say("from the start to the end of the first step")
    for name, times in taken.items():
        say(f"  {name:<12} {statistics.median(times):6.2f} s")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--precisions", nargs="*", default=["fp32", "bf16"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--first-step-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True  # for all arms; the trainer's default
    of_all = {"device": given.device, "model": given.model, "batch": given.batch_size}
    if given.first_step_of:
        ARMS[given.first_step_of][0](Setting("fp32", None, **of_all))(1)
        return
    for precision in given.precisions:
        for checkpoints in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                compare(Setting(precision, Path(folder) if checkpoints else None, **of_all), given.steps, given.rounds)
    if given.starts:
        compare_starts(given.starts)
    say(
        f"{given.model}, {SIDE} px, batch {given.batch_size}, one thread, medians of {given.rounds} in turn   "
        f"({machine()})"
    )


if __name__ == "__main__":
    main()
