"""Trains a small classifier of handwritten digits with Hugging Face Accelerate, in the processes it is started in.

    python train.py --epochs 10

Checkpoints go to the run folder, so that a run that is started again goes on behind its last whole epoch.
"""

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset, random_split


def model() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def data(batch_size: int) -> tuple[DataLoader, DataLoader]:
    """1,797 images of 8 x 8 pixels, which come with scikit-learn; a fifth of them is kept for validation."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    everything = TensorDataset(images, torch.tensor(digits.target))
    train, held = random_split(everything, [0.8, 0.2], torch.Generator().manual_seed(0))
    return DataLoader(train, batch_size, shuffle=True), DataLoader(held, 256)


class Epochs:
    """The number of epochs that are done, as a part of Accelerate's checkpoints."""

    def __init__(self) -> None:
        self.done = 0

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


def train_epoch(accelerator: Accelerator, net: nn.Module, optimizer: Optimizer, batches: DataLoader) -> float:
    """The mean loss of the processes over one epoch."""
    net.train()
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    return accelerator.reduce(torch.stack(losses).mean(), "mean").item()


@torch.no_grad()
def accuracy(accelerator: Accelerator, net: nn.Module, batches: DataLoader) -> float:
    """Of all images, each of which counts once: gather_for_metrics drops what was repeated to fill the last batch."""
    net.eval()
    pairs = [accelerator.gather_for_metrics((net(images).argmax(1), labels)) for images, labels in batches]
    return torch.cat([found == right for found, right in pairs]).float().mean().item()


def save(accelerator: Accelerator, folder: Path, epoch: int) -> None:
    """Keeps the state of all processes.  `newest` names it once it is whole: a killed run finds the one before."""
    accelerator.save_state(str(folder / f"epoch-{epoch}"))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (folder / "newest.new").write_text(f"epoch-{epoch}")
        (folder / "newest.new").replace(folder / "newest")
        shutil.rmtree(folder / f"epoch-{epoch - 1}", ignore_errors=True)


def load_newest(accelerator: Accelerator, folder: Path) -> None:
    if (folder / "newest").exists():
        accelerator.load_state(str(folder / (folder / "newest").read_text()))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per process")
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args(argv)

    set_seed(0)
    folder = Path(os.environ.get("DDP_RUN_DIR", "runs/accelerate"))
    # Under torchrun without GPUs each process would train alone if Accelerate did not know.
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    net = model()
    net, optimizer, train, held = accelerator.prepare(
        net, torch.optim.AdamW(net.parameters(), args.lr), *data(args.batch_size)
    )
    epochs = Epochs()
    accelerator.register_for_checkpointing(epochs)
    load_newest(accelerator, folder)
    while epochs.done < args.epochs:
        loss = train_epoch(accelerator, net, optimizer, train)
        epochs.done += 1
        right = accuracy(accelerator, net, held)
        # A line for each epoch, which the launchers collect in metrics.jsonl.
        words = f"epoch={epochs.done} epochs={args.epochs} loss={loss:.6g} accuracy={right:.6g}"
        accelerator.print("[METRIC]", words, flush=True)
        save(accelerator, folder, epochs.done)
    accelerator.end_training()


if __name__ == "__main__":
    main()
