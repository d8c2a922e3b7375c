"""The learning-rate schedule, and the number of updates of a training.  Pure and torch-free.

The rate depends on the progress in epochs rather than on a count of updates, so that it stays correct if the batch
size changes between epochs, and a resumed run needs no scheduler state.
"""

import math
from bisect import bisect_right
from itertools import pairwise

from trainer import datasets, optimizers
from trainer.config import TrainConfig, batches_at
from trainer.models import SENSITIVE
from trainer.optimizers import TABLE

# Warm-up starts at this share of the peak, as in fast.ai's one-cycle: starting at 0 would waste the first update.
WARMUP_START = 1 / 25
ONECYCLE_RISING = 0.3
WARMUP_SHARE, LONGEST_WARMUP = 0.2, 5.0  # share of the run; epochs (5 as in Goyal et al. 2017)
# With fewer updates even a well-tuned training stays far below its final accuracy; see warning_for_few_updates.
FEW_UPDATES = 200
# Factor of an optimizer's default rate for the models of SENSITIVE.
CAREFUL = {"sgd": 0.1, "adamw": 0.3, "lars": 0.1, "muon": 0.3}
# Models without batch norm.  With it, short runs need a lower rate, see _short_run_factor().
WITHOUT_BATCH_NORM = ("cnn",)
PATIENCE = 3  # epochs before the warning about guessing
SIGMAS = 3.0  # guessing exceeds its mean by more than this once in 700 times


def learning_rate(config: TrainConfig, progress: float, global_batch: int) -> float:
    """The learning rate of the update that begins at `progress`.

    progress: epochs done, such as epoch + step / steps_in_epoch, from 0 up to but not including
    config.epochs.  global_batch: images of this update over all replicas.
    """
    return peak_lr(config) * _scale(config, global_batch) * _shape(config, progress)


def peak_lr(config: TrainConfig) -> float:
    """The learning rate before scaling and schedule: config.lr, or the optimizer's default."""
    return TABLE[config.optimizer].peak_lr if config.lr is None else config.lr


def count_updates(config: TrainConfig, train_size: int, replicas: int) -> int:
    """Updates of the whole run over `train_size` images, with its batch ramp and max_steps.

    Raises SettingsError where a global batch does not divide among the replicas.
    """
    updates = updates_after(config, train_size, replicas, -1)
    return updates if config.max_steps is None else min(updates, config.max_steps)


def updates_after(config: TrainConfig, train_size: int, replicas: int, epoch: int) -> int:
    """Updates of all epochs after `epoch`, ignoring max_steps.

    Raises SettingsError where a global batch does not divide among the replicas.
    """
    begins = [0, *sorted(start for start in config.batch_ramp or {} if start < config.epochs), config.epochs]
    updates = 0
    for begin, end in pairwise(begins):  # between these the batch size is constant
        epochs = max(0, end - max(begin, epoch + 1))
        updates += epochs * (train_size // batches_at(config, begin, replicas).per_update)
    return updates


def warning_for_few_updates(updates: int) -> str | None:
    """A warning if a run is too short to learn, with advice, else None.

    Measured: 43 % accuracy with 31 updates (batch 8192) at any rate, where batch 128 reached 77 % in the same epochs
    and a batch ramp 70 %.
    """
    if updates >= FEW_UPDATES:
        return None
    return (
        f"only {updates} updates in this training; with fewer than about {FEW_UPDATES} it may learn little. "
        "Use a smaller batch, --batch-ramp (such as 0:512,2:2048) or more --epochs."
    )


def _scale(config: TrainConfig, global_batch: int) -> float:
    """Factor of the rate for the global batch.  linear: Goyal et al. 2017; sqrt: Krizhevsky 2014."""
    ratio = global_batch / config.lr_base_batch
    return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[config.lr_scaling]


def _shape(config: TrainConfig, progress: float) -> float:
    """Factor of the peak rate at `progress`, 0 to 1."""
    rising = warmup_length(config)
    if progress < rising:
        return WARMUP_START + (1 - WARMUP_START) * progress / rising
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "multistep":
        return config.lr_gamma ** bisect_right(sorted(config.milestones), progress)
    done = min(1.0, (progress - rising) / (config.epochs - rising))
    return (1 + math.cos(math.pi * done)) / 2


def warmup_length(config: TrainConfig) -> float:
    """Epochs of warm-up: as set, or suitable for the schedule.  One-cycle is a long warm-up followed by cosine.

    Without warm-up, ResNet-18 at SGD's default rate of 0.1 reaches 22 % on CIFAR-10 in its first epoch; with a fifth of
    an epoch, twice that.
    """
    if config.warmup_epochs is not None:
        return config.warmup_epochs
    if config.schedule == "onecycle":
        return ONECYCLE_RISING * config.epochs
    return 0.0 if config.schedule == "constant" else min(LONGEST_WARMUP, WARMUP_SHARE * config.epochs)


def resolved(config: TrainConfig, train_images: int, replicas: int) -> TrainConfig:
    """`config` with defaults for a learning rate, weight decay and warm-up that are not given.

    They depend on model, optimizer, schedule and the number of updates over `train_images`.
    Raises SettingsError where a global batch does not divide among the replicas.
    """
    usual = optimizers.TABLE[config.optimizer]
    found = {
        "lr": _rate(config, train_images, replicas),
        "weight_decay": usual.weight_decay,
        "warmup_epochs": warmup_length(config),
    }
    return config.model_copy(update={name: value for name, value in found.items() if getattr(config, name) is None})


def _rate(config: TrainConfig, train_images: int, replicas: int) -> float:
    rate = optimizers.TABLE[config.optimizer].peak_lr
    if config.model.startswith(SENSITIVE):
        rate *= CAREFUL[config.optimizer]
    if config.model not in WITHOUT_BATCH_NORM:
        rate *= _short_run_factor(config, train_images, replicas)
    return float(f"{rate:.3g}")


def _short_run_factor(config: TrainConfig, train_images: int, replicas: int) -> float:
    """Factor of the rate, below 1 for few updates: batch norm's running averages lag behind fast changing weights."""
    # Independent of --max-steps, so that a run stopped by it can be continued with the same rate.
    unlimited = config.model_copy(update={"max_steps": None})
    return min(1.0, count_updates(unlimited, train_images, replicas) / FEW_UPDATES)


def warning_for_guessing(
    config: TrainConfig, epoch: int, *, is_last: bool, best_top1: float, images: int, classes: int, updates: int
) -> str | None:
    """A warning if a run is no better than guessing after PATIENCE epochs or at its end, with advice, else None.

    epoch: number of epochs done; best_top1: the best accuracy so far, on `images` of `classes`; updates: done so far.
    """
    is_time = is_last or epoch - config.eval_every < PATIENCE <= epoch
    if not is_time or config.dataset == "synthetic" or best_top1 > _most_by_guessing(images, classes):
        return None
    longer = f"; train for more updates (--epochs, a smaller --batch-size) than {updates:,}"
    folders = "; and check that each image is in the folder of its class"
    return (
        f"after {epoch} epoch{'s' if epoch > 1 else ''} an accuracy of {best_top1:.1%} is no better than guessing "
        f"among {classes} classes. Lower --lr to {peak_lr(config) / 10:.2g}{longer if updates < FEW_UPDATES else ''}"
        f"{folders if datasets.is_folder(config.dataset) else ''}."
    )


def _most_by_guessing(images: int, classes: int) -> float:
    share = 1 / classes
    return share + SIGMAS * math.sqrt(share * (1 - share) / images)
