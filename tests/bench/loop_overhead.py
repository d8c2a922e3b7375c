"""Images per second of the trainer against a bare PyTorch loop, in turn, in one process.

The bare loop has the same network, precision, layout, batch and optimizer, and is fed the same random
tensors again and again: it reads, augments, counts and logs nothing.

    python -m tests.bench.loop_overhead --data-dir DIR [--batch-size 256] [--steps 3] [--rounds 12]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tests.bench.report import machine, say
from trainer.config import TrainConfig
from trainer.distributed.pulse import Pulse
from trainer.distributed.ranks import Ranks
from trainer.distributed.session import Session
from trainer.epoch import train_one_epoch
from trainer.metrics.progress import Bar
from trainer.models.resnet18 import build
from trainer.precision import autocast
from trainer.process.interrupt import Interrupt
from trainer.process.machine import pick_device, set_up
from trainer.run import begin_next_epoch
from trainer.training import assemble

Train = Callable[[int], float]


def trainer(settings: TrainConfig, device: torch.device) -> Train:
    """A function that trains as `python -m trainer` does for so many updates and returns images per second."""
    session = Session(Ranks(), device, settings.timeout_s)
    set_up(settings, device, session.ranks)
    training = assemble(settings, session)
    pulse = Pulse(session, Interrupt(), time.monotonic, save_every_s=1e9, at_most_every=settings.log_every)

    def train(steps: int) -> float:
        if training.data.train.size - training.progress.images < steps * settings.batch_size:
            begin_next_epoch(training)
        training.config = settings.model_copy(update={"max_steps": training.progress.updates + steps})
        images, began = training.progress.images, time.perf_counter()
        train_one_epoch(training, training.progress.epoch, pulse, Bar(False), lambda: "")
        return (training.progress.images - images) / (time.perf_counter() - began)

    return train


def bare_loop(batch_size: int, precision: str, device: torch.device) -> Train:
    """A function that trains on random tensors for so many steps and returns images per second."""
    model = build("resnet18", 10, 32).to(device, memory_format=torch.channels_last)
    images = torch.randn(batch_size, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch_size,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    criterion = torch.nn.CrossEntropyLoss()

    def train(steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            with autocast(precision, device):
                loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return batch_size * steps / (time.perf_counter() - began)

    return train


def in_turn(ours: Train, bare: Train, steps: int, turn: int) -> tuple[float, float]:
    """Both speeds, measured one right after the other; who begins alternates, for the machine drifts."""
    if turn % 2:
        return ours(steps), bare(steps)
    second = bare(steps)
    return ours(steps), second


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, help="CIFAR-10 as an image folder")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    device = pick_device("auto", Ranks())
    settings = TrainConfig(
        model="resnet18", dataset="imagefolder", data_dir=given.data_dir, epochs=1000,
        batch_size=given.batch_size, precision=given.precision,
    )  # fmt: skip
    ours, bare = trainer(settings, device), bare_loop(given.batch_size, given.precision, device)
    for warming in (ours, bare):
        warming(1)
    pairs = [in_turn(ours, bare, given.steps, turn) for turn in range(given.rounds)]
    for ours, theirs in pairs:
        say(f"trainer {ours:8.1f} images/s   bare loop {theirs:8.1f} images/s   ratio {ours / theirs:.3f}")
    say(f"median ratio {statistics.median(ours / theirs for ours, theirs in pairs):.3f}   ({machine()})")


if __name__ == "__main__":
    main()
