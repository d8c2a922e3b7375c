"""A training in parts, inside processes that a test has already: what a run does, without its files but checkpoints."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainer import models
from trainer.config import TrainConfig
from trainer.datasets.base import Split
from trainer.datasets.order import Order
from trainer.distributed.agreement import Agreement, Interrupt
from trainer.distributed.session import Session
from trainer.errors import Interrupted
from trainer.metrics.log import Journal
from trainer.metrics.progress import Bar
from trainer.run import train
from trainer.state.checkpoint import Checkpoints, load
from trainer.state.snapshot import restore
from trainer.training import Training, assemble


class Tiny(nn.Module):
    """Quick, and with all that a resumed run must bring back: batch norm, dropout, and a layer that FSDP shards."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        self.wide = nn.Sequential(nn.Linear(128, 800), nn.Dropout(0.2), nn.ReLU())
        self.head = nn.Linear(800, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.wide(self.body(images)))
        return logits


def build(name: str, classes: int, image_size: int) -> nn.Module:
    return Tiny(classes)


def config(**settings: Any) -> TrainConfig:
    """24 images to an update: 1, 2, 3 and 4 ranks divide them."""
    models.TABLE["tiny"] = f"{__name__}:build"
    defaults = {
        "model": "tiny", "dataset": "synthetic", "synthetic_images": 24 * 8, "image_size": 8, "device": "cpu",
        "precision": "fp32", "global_batch_size": 24, "epochs": 2, "lr": 0.05, "bucket_cap_mb": 0.1, "probe_steps": 0,
        "log_every": 1,
    }  # fmt: skip
    return TrainConfig(**(defaults | settings))


class StopAt(Interrupt):
    """A request to stop that comes after so many updates of the run."""

    def __init__(self, updates: float) -> None:
        self.updates = updates
        self.training: Training | None = None

    @property
    def requested(self) -> bool:
        return self.training is not None and self.training.progress.updates >= self.updates


def trained(
    session: Session,
    settings: TrainConfig,
    folder: Path,
    *,
    stop_at: float = float("inf"),
    bar: Bar | None = None,
    journal: Journal | None = None,
    seen: list[int] | None = None,
) -> tuple[Training, list[str]]:
    """Trains from the newest checkpoint in `folder`, if any, to the end or to update `stop_at`, where it saves.

    Returns the training and what it could not restore.  seen: gets the places in the epoch's order that this rank
    trains on.  Collective.
    """
    checkpoints = Checkpoints(folder, settings.keep_checkpoints)
    found = session.broadcast(session.on_head(lambda: checkpoints.newest(print)))
    training = assemble(settings, session, resumes=found is not None)
    if seen is not None:
        object.__setattr__(training.data, "train", Recorder(training.data.train, seen))
    anew = restore(training, load(found)) if found else []
    stop = StopAt(stop_at)
    stop.training = training
    agreement = Agreement(
        session,
        stop,
        time.monotonic,
        save_every_s=settings.checkpoint_every_s,
        at_most_every=settings.log_every,
    )
    with suppress(Interrupted):
        train(training, checkpoints, journal or Journal([]), agreement, bar or Bar(False), lambda line: None)
    session.on_head(checkpoints.wait)
    checkpoints.close()
    session.barrier()
    return training, anew


class Recorder:
    """A split that notes the places in the epoch's order of each batch that is taken."""

    def __init__(self, split: Split, seen: list[int]) -> None:
        self._split, self._seen = split, seen
        self.size, self.bad_images = split.size, split.bad_images

    def train_batches(self, order: Order, positions: Sequence[slice]) -> Iterator[Any]:
        batches = self._split.train_batches(order, positions)
        for batch, where in zip(batches, positions, strict=True):
            self._seen += [order.epoch * order.size + place for place in range(where.start, where.stop)]
            yield batch
        batches.close()

    def eval_batches(self, indices: range, batch_size: int) -> Iterator[Any]:
        return self._split.eval_batches(indices, batch_size)


def state(folder: Path) -> dict[str, Any]:
    """The newest checkpoint in `folder`."""
    found = Checkpoints(folder, 3).newest(print)
    assert found is not None
    return load(found)


def differing(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two checkpoints differ in a bit."""
    if isinstance(one, Tensor):
        return [] if isinstance(other, Tensor) and torch.equal(one, other) else [path]
    if isinstance(one, dict):
        names = one.keys() | other.keys()
        return [
            bad
            for name in sorted(names, key=str)
            for bad in differing(one.get(name), other.get(name), f"{path}/{name}")
        ]
    if isinstance(one, list):
        pairs = zip(one, other, strict=True)
        return [bad for number, pair in enumerate(pairs) for bad in differing(*pair, f"{path}/{number}")]
    return [] if one == other else [path]
