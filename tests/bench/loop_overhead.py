"""Images per second of the trainer against a bare PyTorch loop, in turn, in one process.

The bare loop has the same network, precision, layout, batch and optimizer, and is fed the same random
tensors again and again: it reads, augments, counts and logs nothing.

    python -m tests.bench.loop_overhead --data-dir DIR [--batch-size 256] [--steps 8] [--rounds 3]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tests.bench.report import machine, say
from trainer.config import TrainConfig
from trainer.log import read_records
from trainer.machine import pick_device
from trainer.models.resnet18 import build
from trainer.precision import autocast
from trainer.ranks import Ranks
from trainer.run import run


def trainer_images_per_s(settings: TrainConfig, steps: int) -> float:
    """`python -m trainer` itself, all but the process: its own figure for an epoch of `steps` updates."""
    with tempfile.TemporaryDirectory() as folder:
        config = settings.model_copy(update={"max_steps": steps, "run_dir": Path(folder)})
        run(config, Ranks(), Path(folder), lambda line: None, interactive=False)
        return float(read_records(Path(folder) / "metrics.jsonl")[-1]["images_per_s"])


def bare_loop(batch_size: int, precision: str, device: torch.device) -> Callable[[int], float]:
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


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, help="CIFAR-10 as an image folder")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    device = pick_device("auto", Ranks())
    settings = TrainConfig(
        model="resnet18", dataset="imagefolder", data_dir=given.data_dir, epochs=1, batch_size=given.batch_size,
    )  # fmt: skip
    bare = bare_loop(given.batch_size, given.precision, device)
    trainer_images_per_s(settings, 2)  # decodes the data set if it must, and warms up
    bare(2)
    pairs = [(trainer_images_per_s(settings, given.steps), bare(given.steps)) for _ in range(given.rounds)]
    for ours, theirs in pairs:
        say(f"trainer {ours:8.1f} images/s   bare loop {theirs:8.1f} images/s   ratio {ours / theirs:.3f}")
    say(f"median ratio {statistics.median(ours / theirs for ours, theirs in pairs):.3f}   ({machine()})")


if __name__ == "__main__":
    main()
