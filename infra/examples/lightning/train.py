"""Trains a small classifier of handwritten digits with PyTorch Lightning, in the processes it is started in.

    python train.py --epochs 10

Checkpoints go to the run folder, so that a run that is started again goes on behind its last whole epoch.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class Classifier(LightningModule):
    """Two convolutions and a linear layer."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
        )  # fmt: skip

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self.layers(images), labels)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        images, labels = batch
        right = (self.layers(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, batch_size=len(labels), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), self.lr)


class MetricLines(Callback):
    """Prints a line for each epoch, which the launchers collect in metrics.jsonl.  Without them it is a line of log."""

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        if trainer.is_global_zero:
            values = {name: float(value) for name, value in trainer.callback_metrics.items()}
            words = " ".join(f"{name}={value:.6g}" for name, value in sorted(values.items()))
            print(f"[METRIC] epoch={trainer.current_epoch + 1} epochs={trainer.max_epochs} {words}", flush=True)


def data(batch_size: int) -> tuple[DataLoader, DataLoader]:
    """1,797 images of 8 x 8 pixels, which come with scikit-learn; a fifth of them is kept for validation."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    everything = TensorDataset(images, torch.tensor(digits.target))
    train, held = random_split(everything, [0.8, 0.2], torch.Generator().manual_seed(0))
    return DataLoader(train, batch_size, shuffle=True), DataLoader(held, 256)


def processes(env: Mapping[str, str], devices: str) -> dict[str, Any]:
    """Arguments for Lightning's Trainer: it checks that devices x num_nodes is what torchrun has started.

    Without torchrun's variables, that is with --processes one, it starts one process for each device of this node by
    itself.  Left to look around, it would take Slurm's variables for its own, and start MPI where mpi4py is installed.
    """
    here = int(env.get("LOCAL_WORLD_SIZE", 0))
    if here:
        nodes = int(env["WORLD_SIZE"]) // here
        return {"devices": here, "num_nodes": nodes, "plugins": TorchElasticEnvironment()}
    return {"devices": devices, "num_nodes": int(env.get("NNODES", 1)), "plugins": LightningEnvironment()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per process")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--devices", default="auto", help="processes that Lightning starts; auto: one for each GPU")
    args = parser.parse_args(argv)

    seed_everything(0)
    folder = Path(os.environ.get("DDP_RUN_DIR", "runs/lightning"))
    train, held = data(args.batch_size)
    trainer = Trainer(
        **processes(os.environ, args.devices),
        max_epochs=args.epochs,
        default_root_dir=folder,
        callbacks=[ModelCheckpoint(folder / "checkpoints", save_last=True), MetricLines()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = folder / "checkpoints" / "last.ckpt"
    trainer.fit(Classifier(args.lr), train, held, ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    main()
