"""Loops that train the same network on the same tensors: the arms of tests/bench/loop_overhead.py."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainer import models
from trainer.config import TrainConfig
from trainer.datasets.base import Batch
from trainer.errors import import_function
from trainer.optimizers.precision import autocast

SIDE, CLASSES = 32, 10
SGD: Mapping[str, Any] = {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}

Step = Callable[[Tensor, Tensor], None]  # trains on one batch
Block = Callable[[int], float]  # trains so many steps and returns the seconds that they took


class Setting:
    """What all arms share.  folder: for checkpoints, one at the end of each block, or None.

    Tensors and model are on the device from the start, so that loops are compared and not loaders.
    """

    def __init__(
        self, precision: str, folder: Path | None, *, device: str = "cpu", model: str = "cnn", batch: int = 32
    ) -> None:
        self.precision, self.folder, self.device = precision, folder, torch.device(device)
        self.name, self.batch = model, batch
        generator = torch.Generator().manual_seed(0)
        shape = (max(4096, batch), 3, SIDE, SIDE)
        images = torch.randn(shape, generator=generator).contiguous(memory_format=torch.channels_last)
        self.images = images.to(self.device)
        self.labels = torch.randint(0, CLASSES, (len(images),), generator=generator).to(self.device)

    def batches(self, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        for step in range(steps):
            at = step * self.batch % len(self.images)
            yield self.images[at : at + self.batch], self.labels[at : at + self.batch]

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        build = import_function(models.TABLE[self.name])
        plain: nn.Module = build(self.name, CLASSES, SIDE)
        return plain.to(self.device, memory_format=torch.channels_last)

    def clock(self) -> float:
        """Seconds of the processor, all threads of this process; with a GPU of the wall, once it has done its work."""
        if self.device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if self.folder is not None:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, self.folder / "checkpoint.pt"
            )


def timed(setting: Setting, train: Callable[[int], None]) -> Block:
    """`train` with a watch."""

    def block(steps: int) -> float:
        began = setting.clock()
        train(steps)
        return setting.clock() - began

    return block


def looped(setting: Setting, model: nn.Module, optimizer: torch.optim.Optimizer, step: Step) -> Block:
    """The usual loop: `step` for each batch, then a checkpoint."""

    def train(steps: int) -> None:
        model.train()
        for images, labels in setting.batches(steps):
            step(images, labels)
        setting.save(model, optimizer)

    return timed(setting, train)


def bare(setting: Setting, fused: bool | None = None) -> Block:
    """The least that trains."""
    model = setting.model()
    optimizer = torch.optim.SGD(model.parameters(), fused=fused, **SGD)
    criterion = nn.CrossEntropyLoss()

    def step(images: Tensor, labels: Tensor) -> None:
        with autocast(setting.precision, setting.device):
            loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return looped(setting, model, optimizer, step)


def bare_fused(setting: Setting) -> Block:
    """The same with the optimizer's fused kernels, which ours takes by default."""
    return bare(setting, fused=True)


class Feed:
    """The shared tensors as the training half of a data set."""

    size, bad_images = 10**7, ()

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def train_batches(self, _: object, positions: Sequence[slice]) -> Iterator[Batch]:
        return (Batch(*batch) for batch in self._setting.batches(len(positions)))


def ours(setting: Setting) -> Block:
    """What `python -m trainer` does in an epoch."""
    from trainer.distributed.agreement import Agreement, Interrupt
    from trainer.distributed.ranks import Ranks
    from trainer.distributed.session import Session
    from trainer.epoch import train_one_epoch
    from trainer.metrics.progress import Bar
    from trainer.state import snapshot
    from trainer.state.checkpoint import Checkpoints
    from trainer.training import assemble

    settings = TrainConfig(
        model=setting.name,
        dataset="synthetic",
        image_size=SIDE,
        batch_size=setting.batch,
        epochs=1,
        precision=setting.precision,
        lr=SGD["lr"],
    )
    session = Session(Ranks(), setting.device, settings.timeout_s)
    training = assemble(settings, session)
    training.data = replace(training.data, train=Feed(setting))  # type: ignore[arg-type]
    agreement = Agreement(session, Interrupt(), time.monotonic, save_every_s=1e9, at_most_every=settings.log_every)
    checkpoints = Checkpoints(setting.folder / "ours", keep=1) if setting.folder else None

    def train(steps: int) -> None:
        training.config = training.config.model_copy(update={"max_steps": training.progress.updates + steps})
        train_one_epoch(training, 0, agreement, Bar(False), lambda: "")
        if checkpoints is not None:
            checkpoints.save(snapshot.take(training), 0, training.progress.updates, is_best=False)
            checkpoints.wait()

    return timed(setting, train)


def lightning(setting: Setting) -> Block:
    """Lightning's Trainer; timed from its first step on, for `fit` begins anew for each block."""
    import logging
    import warnings

    import lightning.pytorch as framework
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint
    from lightning.pytorch.plugins.environments import LightningEnvironment

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(framework.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.criterion = setting.model(), nn.CrossEntropyLoss()

        def training_step(self, batch: Any, _: int) -> Tensor:
            images, labels = batch
            loss: Tensor = self.criterion(self.model(images), labels)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), **SGD)

    class Loader:  # a list would be one loader for each of its items
        def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
            self.batches = batches

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return iter(self.batches)

        def __len__(self) -> int:
            return len(self.batches)

    class Watch(Callback):
        began = 0.0

        def on_train_batch_start(self, _: Any, __: Any, ___: Any, batch: int) -> None:
            if batch == 0:
                self.began = setting.clock()

    module = Module()

    def block(steps: int) -> float:
        watch = Watch()
        keeps = [ModelCheckpoint(setting.folder, every_n_train_steps=steps)] if setting.folder else []
        trainer = framework.Trainer(
            accelerator=setting.device.type, devices=1, max_steps=steps, max_epochs=1, logger=False,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=bool(keeps),
            callbacks=[watch, *keeps],
            precision="bf16-mixed" if setting.precision == "bf16" else "32-true",
            plugins=[LightningEnvironment()],  # or it looks for MPI
        )  # fmt: skip
        trainer.fit(module, Loader(list(setting.batches(steps))))
        return setting.clock() - watch.began

    return block


def accelerate(setting: Setting) -> Block:
    """The loop of Accelerate's quick tour."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)  # it keeps the precision of the one before
    accelerator = Accelerator(
        cpu=setting.device.type == "cpu", mixed_precision="bf16" if setting.precision == "bf16" else "no"
    )
    plain = setting.model()
    model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), **SGD))
    criterion = nn.CrossEntropyLoss()

    def train(steps: int) -> None:
        model.train()
        for images, labels in setting.batches(steps):
            with accelerator.accumulate(model):
                with accelerator.autocast():
                    loss = criterion(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        if setting.folder is not None:
            accelerator.save_state(str(setting.folder / "accelerate"))

    return timed(setting, train)


def timm(setting: Setting) -> Block:
    """timm's optimizer, scheduler and meter, in the order of its train.py."""
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import AverageMeter

    model = setting.model()
    optimizer = create_optimizer_v2(model, opt="sgd", lr=SGD["lr"], weight_decay=SGD["weight_decay"], momentum=0.9)
    scheduler = CosineLRScheduler(optimizer, t_initial=10**6, t_in_epochs=False)
    criterion, meter, done = nn.CrossEntropyLoss(), AverageMeter(), 0

    def step(images: Tensor, labels: Tensor) -> None:
        nonlocal done
        with autocast(setting.precision, setting.device):
            loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        meter.update(loss.item(), len(images))
        scheduler.step_update(num_updates=done, metric=meter.avg)

    return looped(setting, model, optimizer, step)


def torchvision(setting: Setting) -> Block:
    """What the reference script does for every batch: loss, top-1 and top-5 are read off each."""
    model = setting.model()
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    criterion, read = nn.CrossEntropyLoss(), dict.fromkeys(("loss", "top1", "top5"), 0.0)

    def step(images: Tensor, labels: Tensor) -> None:
        with autocast(setting.precision, setting.device):
            logits = model(images)
            loss = criterion(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            right = logits.topk(5, dim=1).indices.t() == labels[None]
            read["top1"] += (right[:1].flatten().sum(dtype=torch.float32) * (100 / setting.batch)).item()
            read["top5"] += (right[:5].flatten().sum(dtype=torch.float32) * (100 / setting.batch)).item()
        read["loss"] += loss.item()

    return looped(setting, model, optimizer, step)


ARMS: Mapping[str, tuple[Callable[[Setting], Block], str]] = {
    "bare": (bare, "torch"),
    "bare, fused": (bare_fused, "torch"),
    "ours": (ours, "torch"),
    "lightning": (lightning, "lightning"),
    "accelerate": (accelerate, "accelerate"),
    "timm": (timm, "timm"),
    "torchvision": (torchvision, "torchvision"),
}
