"""What a data set gives the training: two splits that yield ready batches on the device."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from trainer.distributed.sampler import Order
from trainer.signature import Signature

# The label of an image that could not be read: cross_entropy's default ignore_index, so it weighs nothing.
UNREADABLE = -100


class Batch(NamedTuple):
    """images: (B, 3, H, W) float32, normalised, on the device; labels: (B,) int64, UNREADABLE where skipped."""

    images: Tensor
    labels: Tensor


class Split(Protocol):
    """One half of a data set."""

    size: int

    def train_batches(self, order: Order, positions: Sequence[slice]) -> Generator[Batch]:
        """Augmented batches: the images at `positions` of `order`, one batch per slice."""
        ...

    def eval_batches(self, indices: range, batch_size: int) -> Generator[Batch]:
        """The images `indices`, unaugmented, in order; the last batch may be smaller."""
        ...

    @property
    def bad_images(self) -> Sequence[str]:
        """Names of the images this process skipped because they could not be read."""
        ...


@dataclass(frozen=True)
class Data:
    """A loaded data set.  signature: the names of its classes, and how its images become batches.

    eval_split: what its authors call the half to evaluate on; sizes: a remark on images of several sizes, or "".
    """

    train: Split
    evaluation: Split
    signature: Signature
    eval_split: str = "test"
    sizes: str = ""

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.signature.classes)

    @property
    def image_size(self) -> int:
        """Pixels a side of what the batches hold."""
        return self.signature.image_size


@dataclass(frozen=True)
class Request:
    """What a loader needs to know; it reads no settings and no environment itself."""

    data_dir: Path
    cache_dir: Path
    device: torch.device
    image_size: int | None
    augment: bool
    channels_last: bool
    workers: int
    max_bad_images: int
    download: bool
    seed: int
    synthetic_images: int
    synthetic_classes: int
    data_url: str | None = None
    data_cache_gb: float = 50.0
    shuffle_shards: int = 16
    first_size: int | None = None  # in the first of `epochs`, from which images grow to their full size
    epochs: int = 1
    decodes_on_gpu: bool = False
    by_processes: bool = False  # decode in `workers` processes, not threads
