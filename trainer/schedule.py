"""The learning rate at every moment of a training, and how many updates it has: pure and torch-free.

Time is progress in epochs, not a count of updates, so that the rate stays right when the batch size
changes between epochs and a resumed run needs no scheduler state.
"""

import math
from bisect import bisect_right
from itertools import pairwise

from trainer.batches import batches_at
from trainer.config import TrainConfig
from trainer.optimizers import TABLE

# Warm-up starts here, as in fast.ai's one-cycle: starting at 0 would waste the first update.
WARMUP_START = 1 / 25
ONECYCLE_RISING = 0.3
WARMUP_SHARE, LONGEST_WARMUP = 0.2, 5.0  # of the run; epochs (5 is Goyal et al. 2017's)
# Below this even a well-tuned training stays far from its accuracy; measured, see warning_for_few_updates.
FEW_UPDATES = 200


def learning_rate(config: TrainConfig, progress: float, global_batch: int) -> float:
    """The rate of the update that begins at `progress`.

    progress: epochs done, such as epoch + step / steps_in_epoch, from 0 up to but not including
    config.epochs.  global_batch: images of this update over all replicas.
    """
    return peak_lr(config) * _scale(config, global_batch) * _shape(config, progress)


def peak_lr(config: TrainConfig) -> float:
    """The learning rate before scaling and schedule: config.lr, else the optimizer's default."""
    return TABLE[config.optimizer].peak_lr if config.lr is None else config.lr


def count_updates(config: TrainConfig, train_size: int, replicas: int) -> int:
    """Updates of the whole run over `train_size` images: batch ramp and max_steps counted in.

    Raises SettingsError where a global batch does not divide among the replicas.
    """
    updates = updates_after(config, train_size, replicas, -1)
    return updates if config.max_steps is None else min(updates, config.max_steps)


def updates_after(config: TrainConfig, train_size: int, replicas: int, epoch: int) -> int:
    """Updates of all epochs after `epoch`, if no limit ends them early.

    Raises SettingsError where a global batch does not divide among the replicas.
    """
    begins = [0, *sorted(start for start in config.batch_ramp or {} if start < config.epochs), config.epochs]
    updates = 0
    for begin, end in pairwise(begins):  # the batch changes nowhere else
        epochs = max(0, end - max(begin, epoch + 1))
        updates += epochs * (train_size // batches_at(config, begin, replicas).per_update)
    return updates


def warning_for_few_updates(updates: int) -> str | None:
    """A warning for a run too short to learn, with what to do about it; else None.

    Measured with 31 updates (batch 8192): 43 % whatever the rate, where batch 128 reached 77 % in the
    same epochs and a batch ramp 70 %.
    """
    if updates >= FEW_UPDATES:
        return None
    return (
        f"only {updates} updates in this training; with fewer than about {FEW_UPDATES} it may learn little. "
        "Use a smaller batch, --batch-ramp (such as 0:512,2:2048) or more --epochs."
    )


def _scale(config: TrainConfig, global_batch: int) -> float:
    """Linear: Goyal et al. 2017; sqrt: Krizhevsky 2014."""
    ratio = global_batch / config.lr_base_batch
    return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[config.lr_scaling]


def _shape(config: TrainConfig, progress: float) -> float:
    """Factor of the peak rate, 0 to 1."""
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
    """Epochs of warm-up: as set, or what suits the schedule.  One-cycle is a long warm-up and cosine.

    Without one, ResNet-18 at SGD's usual rate of 0.1 spends its first epoch on getting over the first
    updates: 22 % on CIFAR-10 where it reaches twice that with a fifth of an epoch of warm-up.
    """
    if config.warmup_epochs is not None:
        return config.warmup_epochs
    if config.schedule == "onecycle":
        return ONECYCLE_RISING * config.epochs
    return 0.0 if config.schedule == "constant" else min(LONGEST_WARMUP, WARMUP_SHARE * config.epochs)
