"""The share of the trainer's step that waits for data, beside a device as fast as an A10G: a sleep, not a network.

    python -m tests.bench.waiting FOLDER

An A10G trains ResNet-18 at 224 px on 2,450 images/s, and a g5.2xlarge has eight virtual processors to feed it, so the
device takes the share  2,450 / (8 * images/s of a virtual processor)  of what they can decode: the rates are those of
infra/rates.yaml.  This machine has fewer processors, which others use as well.  So the device is made slower until it
takes the same share of what this one can decode at that moment: blocks of steps with a device that takes no time,
which show how much that is, take turns with blocks at that share of it, which are measured.  Of each block the first
steps are left out, in which what is decoded ahead runs empty or fills.  The trainer's own loop, stopwatch and decoding
processes run, with a pause in place of forward and backward passes and of what a GPU does to the bytes.  The host is
a batch ahead of the device, as with a GPU: where it waits for a batch while the device is busy with the one before,
nothing is lost, so both are shown, the share of the time that the device was idle, and that in which the host waited.
FOLDER has train/CLASS/*.jpg, read as they are, and from copies of 256 px.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
import warnings
from contextlib import nullcontext
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch

from tests.bench.input import SHORTER, link, shrink
from tests.bench.input_arms import SIDE

DEVICE_PER_S, VCPUS = 2450, 8
BATCH = 32  # images for each worker: eight feed a batch of 256, and so many batches are decoded ahead in either case
LEFT_OUT, COUNTED = 6, 12  # steps of each block


class Sleep:
    """A stand-in for the model, its loss and its optimizer, at so many batches/s."""

    def __init__(self) -> None:
        self.per_s = 0.0  # no time at all
        self.idle_s = 0.0
        self._free_at = 0.0

    def train(self) -> None:
        """As a module would be switched."""

    def __call__(self, images: Any) -> torch.Tensor:
        """Waits, as a host does for the device that it has given enough to do, until the last batch is done."""
        early_s = self._free_at - time.perf_counter()
        self.idle_s += max(0.0, -early_s)
        time.sleep(max(0.0, early_s))
        self._free_at = time.perf_counter() + (1 / self.per_s if self.per_s else 0.0)
        return torch.zeros(len(images), 2)

    def backward(self, loss: torch.Tensor) -> None:
        """Takes no time of its own."""

    def update(self, rate: float) -> None:
        """Likewise."""


def main() -> None:
    """Prints, for each kind of file and for one and two ranks, the share of the time that the loop waited."""
    from launch.core import catalog
    from launch.core.estimate.rates import decoded_per_vcpu

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    cores, machine = len(os.sched_getaffinity(0)), catalog.find("g5.2xlarge")
    with tempfile.TemporaryDirectory() as temporary:
        raw, small = Path(temporary, "raw"), Path(temporary, "small")
        link(asked.folder, raw, 1024)
        shrink(raw, small)
        for title, root, rate in (
            (f"files of {SHORTER} px", small, decoded_per_vcpu(machine, is_small=True).value),
            ("files as they are", raw, decoded_per_vcpu(machine, is_small=False).value),
        ):
            share = DEVICE_PER_S / (VCPUS * rate)
            print(f"\n{title}: {rate:.0f} images/s of each of eight; the device takes {share:.0%} of what they decode")
            for ranks, workers in ((1, cores), (2, 8)):
                found = run(root, ranks, workers, share, asked.rounds)
                print(f"  {ranks} rank{'s' * (ranks > 1)} of {workers} workers: {found}", flush=True)


def run(root: Path, ranks: int, workers: int, share: float, rounds: int) -> str:
    """What the ranks found, all at once, in words."""
    spawn = multiprocessing.get_context("spawn")
    together, answers = spawn.Barrier(ranks), spawn.Queue()
    processes = [spawn.Process(target=one_rank, args=(root, workers, share, rounds, together, answers))
                 for _ in range(ranks)]  # fmt: skip
    for process in processes:
        process.start()
    blocks = [block for _ in processes for block in answers.get()]
    for process in processes:
        process.join()
    images = ranks * workers * BATCH
    idle, waits, paced, free = ([block[place] for block in blocks] for place in range(4))
    rate, most = (images * statistics.median(each) for each in (paced, free))
    return (
        f"the device idle {statistics.median(idle):.1%} of the time (blocks {min(idle):.1%} - {max(idle):.1%}), "
        f"the host waiting {statistics.median(waits):.1%}, at "
        f"{rate:.0f} images/s, of {most:.0f} that were decoded for a device that takes no time"
    )


def one_rank(
    root: Path, workers: int, share: float, rounds: int, together: Barrier, answers: "Queue[list[tuple[float, ...]]]"
) -> None:
    """Puts the shares of idleness and waiting, batches/s, and those for a device that takes no time, of each round."""
    from trainer.loop import StepContext, train_epoch
    from trainer.metrics.counters import Stopwatch, Totals

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # DataLoader's, of more processes than there are processors
    sleep, watch, device = Sleep(), Stopwatch(torch.device("cpu")), torch.device("cpu")
    step_context = StepContext(sleep, lambda logits, labels: logits.sum(), sleep, nullcontext, nullcontext)  # type: ignore[arg-type]
    loop = train_epoch(step_context, batches(root, workers, rounds), lambda step: 0.1, Totals(device), watch)
    steps, blocks = 0, list[tuple[float, ...]]()

    def block() -> tuple[float, float, float]:
        """The shares of the device's idleness and of the host's waiting, and the batches/s, of COUNTED steps."""
        nonlocal steps
        together.wait()
        for _ in range(LEFT_OUT):
            next(loop)
        steps += LEFT_OUT
        before, idle, began = watch.report()["data_wait"] * steps, sleep.idle_s, time.perf_counter()
        for _ in range(COUNTED):
            next(loop)
        steps += COUNTED
        took = time.perf_counter() - began
        waited_s = (watch.report()["data_wait"] * steps - before) / 1e3
        return (sleep.idle_s - idle) / took, waited_s / took, COUNTED / took

    for _ in range(rounds):
        sleep.per_s = 0.0
        *_, free = block()
        sleep.per_s = share * free
        blocks.append((*block(), free))
    answers.put(blocks)
    together.wait()  # the others are measured beside as much work as before


def batches(root: Path, workers: int, rounds: int) -> Any:
    """Bytes, as the processes that feed a GPU hand them over."""
    from trainer.config import TrainConfig
    from trainer.datasets import imagefolder, streaming
    from trainer.datasets.order import Order
    from trainer.distributed.ranks import Ranks
    from trainer.distributed.session import Session
    from trainer.training import data_request

    # Copied as DataLoader's thread copies them for a GPU: into pinned memory, which torch uses again.
    pinned = torch.empty((workers * BATCH, SIDE, SIDE, 3), dtype=torch.uint8)
    streaming.gathered = lambda parts, *_: (torch.cat([part.pixels for part in parts], out=pinned), {})
    cache = Path(tempfile.mkdtemp(dir=root))
    config = TrainConfig(dataset="imagenet", data_dir=root, workers=workers, cache_dir=cache, worker_kind="processes")
    train = imagefolder.load_large(
        data_request(config, Session(Ranks(), torch.device("cpu"), 60), channels_last=True)
    ).train
    batch = workers * BATCH
    places = [slice(start, start + batch) for start in range(0, train.size // batch * batch, batch)]
    needed = 2 * rounds * (LEFT_OUT + COUNTED)
    return train.train_batches(Order(train.size, 0, 0), (places * (needed // len(places) + 1))[:needed])


if __name__ == "__main__":
    main()
