"""How many images go through at once: the batch arithmetic of a training.  Torch-free."""

import math
from dataclasses import dataclass

from trainer.config import TrainConfig
from trainer.datasets import SMALL_PX, is_folder
from trainer.errors import SettingsError
from trainer.models import largest_alone

GROWING = 0.8  # of the epochs; the last ones see images as evaluation does
STEPS = 4  # few, since every new size is compiled, and benchmarked by cuDNN, once more
MULTIPLE = 8  # of pixels, which tensor cores want


@dataclass(frozen=True)
class Batches:
    """How many images go through at once.  replicas: GPUs or CPU ranks that share one update."""

    per_replica: int
    accumulate: int
    replicas: int

    @property
    def per_update(self) -> int:
        """The global batch."""
        return self.per_replica * self.accumulate * self.replicas


def batches_at(config: TrainConfig, epoch: int, replicas: int) -> Batches:
    """The batch arithmetic of one epoch.  Raises SettingsError where the global batch does not divide."""
    wanted = _ramped(config, epoch) or config.global_batch_size
    if wanted is None:
        return Batches(config.batch_size, config.accumulate, replicas)
    share = replicas * config.accumulate
    if wanted % share:
        nearest = max(share, round(wanted / share) * share)
        raise SettingsError(
            f"a global batch of {wanted} does not divide among {replicas} replicas x {config.accumulate} "
            f"accumulated passes; the nearest that does is {nearest}."
        )
    return Batches(wanted // share, config.accumulate, replicas)


def check_batches(config: TrainConfig, replicas: int) -> None:
    """Raises SettingsError where a global batch of some epoch does not divide among `replicas`, or is too small."""
    px = config.image_size or (None if is_folder(config.dataset) else SMALL_PX)
    first = config.image_size_start or px  # the smallest images
    if smallest_batch(config, replicas) == 1 and first is not None and first <= largest_alone(config.model):
        raise single_images(config.model, first)


def smallest_batch(config: TrainConfig, replicas: int) -> int:
    """Images that one replica takes at a time, in the epoch with the fewest.  Raises SettingsError as batches_at()."""
    return min(batches_at(config, epoch, replicas).per_replica for epoch in {0, *(config.batch_ramp or {})})


def single_images(model: str, px: int) -> SettingsError:
    """The error for batches of one image, of which a batch norm would see a single value of a channel."""
    return SettingsError(
        f"{model} normalises over its batch, and one image of {px} px at a time leaves it a single value; "
        "give each replica two images or more (--batch-size 2), larger images, or --model cnn."
    )


def _ramped(config: TrainConfig, epoch: int) -> int | None:
    begun = [start for start in config.batch_ramp or {} if start <= epoch]
    return config.batch_ramp[max(begun)] if config.batch_ramp and begun else None


def side_at(epoch: int, epochs: int, first: int | None, full: int) -> int:
    """Pixels a side in `epoch`, counted from 0: `first` in the first one, then more in STEPS, up to `full`."""
    if first is None:
        return full
    last_of_growth = max(1, math.ceil(GROWING * (epochs - 1)))
    step = STEPS * min(epoch, last_of_growth) // last_of_growth
    if step == STEPS:
        return full
    grown = first + (full - first) * step / STEPS
    return max(first, int(grown) // MULTIPLE * MULTIPLE)


def sides(epochs: int, first: int | None, full: int) -> list[int]:
    """The different sizes of a training, smallest first."""
    return sorted({side_at(epoch, epochs, first, full) for epoch in range(epochs)})
