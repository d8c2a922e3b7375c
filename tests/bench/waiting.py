"""The share of the trainer's step that waits for data, beside a device as fast as an A10G: a sleep, not a network.

    python -m tests.bench.waiting FOLDER

ResNet-18 at 224 px trains on 2,450 images/s of an A10G, and a g5.2xlarge has eight virtual processors to feed it, of
which it then uses the share  2,450 / (8 * images per processor-second).  This machine has fewer processors, which
others use as well, so the device is made slower until it uses the same share of what this one can decode at that
moment: that is measured first, with a device that takes no time.  --rate is what a virtual processor of the real
machine decodes; without it the answer is for eight processors like these.  The trainer's own loop, stopwatch and
threads run, with a pause in place of forward and backward passes, and threads make bytes, as for a GPU.  FOLDER has
train/CLASS/*.jpg, read as they are, and from copies of 256 px.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from tests.bench.input import SHORTER, link, processor_seconds, shrink
from tests.bench.input_arms import BATCH, ours_for_gpu

DEVICE_PER_S, VCPUS = 2450, 8
FAST = 1e9  # images/s of a device that takes no time


class Sleep:
    """A stand-in for the model, its loss and its optimizer."""

    def __init__(self, images_per_s: float) -> None:
        self._seconds = BATCH / images_per_s
        self._free_at = 0.0

    def train(self) -> None:
        """As a module would be switched."""

    def __call__(self, images: Any) -> torch.Tensor:
        """Waits, as a host does for the device that it has given enough to do, until the last batch is done."""
        time.sleep(max(0.0, self._free_at - time.perf_counter()))
        self._free_at = time.perf_counter() + self._seconds
        return torch.zeros(BATCH, 2)

    def backward(self, loss: torch.Tensor) -> None:
        """Takes no time of its own."""

    def update(self, rate: float) -> None:
        """Likewise."""


def main() -> None:
    """Prints, for each kind of file and for one and two ranks, the share of the time that the loop waited."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=1280)
    parser.add_argument("--rate", type=float, help="images that a virtual processor of the real machine decodes in 1 s")
    parser.add_argument("--rank", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank:
        print(*one_rank(asked.folder, float(asked.rank[0]), int(asked.rank[1])))
        return
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as temporary:
        raw, small = Path(temporary, "raw"), Path(temporary, "small")
        link(asked.folder, raw, asked.images)
        shrink(raw, small)
        for title, root in (("files as they are", raw), (f"files of {SHORTER} px", small)):
            here = processor_rate(root, cores)
            share = DEVICE_PER_S / (VCPUS * (asked.rate or here))
            print(f"\n{title}: {here:.0f} images per processor-second here; the device takes {share:.0%} of eight")
            for ranks, workers in ((1, cores), (2, 8)):
                whole = sum(rate for _, rate in run(root, ranks, workers, FAST))
                waits = run(root, ranks, workers, share * whole / ranks)
                shown = ", ".join(f"{part:.1%}" for part, _ in waits)
                got = sum(rate for _, rate in waits)
                print(
                    f"  {ranks} rank{'s' * (ranks > 1)} of {workers} workers: waits {shown} of the time at {got:.0f} "
                    f"images/s, of {whole:.0f} that were decoded for a device that takes no time",
                    flush=True,
                )


def processor_rate(root: Path, workers: int) -> float:
    """Images for a second of one processor, of what the CPU does for a GPU."""
    epoch = ours_for_gpu(root, workers)
    for _ in epoch():
        pass
    before = processor_seconds()
    images = sum(BATCH for _ in epoch())
    return images / (processor_seconds() - before)


def run(root: Path, ranks: int, workers: int, rate: float) -> list[tuple[float, float]]:
    """(share of the time that was waited, images/s) of each rank, all at once."""
    command = [sys.executable, "-m", "tests.bench.waiting", str(root), "--rank", str(rate), str(workers)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(ranks)]
    answers = [process.communicate()[0].split() for process in processes]
    return [(float(share), float(rate)) for share, rate in answers]


def one_rank(root: Path, rate: float, workers: int) -> tuple[float, float]:
    """The trainer's loop over two epochs, of which the second counts but for its first batches."""
    from trainer.loop import Trainee, train_epoch
    from trainer.metrics.counters import Stopwatch, Totals

    torch.set_num_threads(1)
    sleep, device = Sleep(rate), torch.device("cpu")
    trainee = Trainee(sleep, lambda logits, labels: logits.sum(), sleep, nullcontext, nullcontext)  # type: ignore[arg-type]
    epoch = ours_for_gpu(root, workers)
    began, images, waited = 0.0, 0, 0.0
    for _epoch in range(2):
        watch, steps = Stopwatch(device), 0
        loop = train_epoch(trainee, epoch(), lambda step: 0.1, Totals(device), watch)
        for _ in loop:
            steps += 1
            if steps == 1:  # threads have filled what is decoded ahead
                began, waited = time.perf_counter(), watch.report()["data_wait"]
        took, images = time.perf_counter() - began, (steps - 1) * BATCH
        waited = watch.report()["data_wait"] * steps - waited
    return waited / 1e3 / took, images / took


if __name__ == "__main__":
    main()
