"""The interface of a data set: two splits that yield normalised batches on the device."""

import json
import math
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from trainer.datasets.order import Order
from trainer.datasets.tree import class_name
from trainer.errors import SettingsError

# The label of an image that could not be read: cross_entropy's default ignore_index, so it does not count.
UNREADABLE = -100
Channels = tuple[float, float, float]


class Batch(NamedTuple):
    """The images of one forward pass with their labels, on the device."""

    images: Tensor  # (B, 3, H, W) float32, normalised
    labels: Tensor  # (B,) int64, UNREADABLE for skipped images


class Split(Protocol):
    """The training or the evaluation half of a data set."""

    size: int  # number of images

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
class Signature:
    """How an image becomes the input of a model, and which class each output stands for."""

    classes: tuple[str, ...]  # class names in the order of the outputs
    image_size: int  # pixels per side
    mean: Channels  # per channel, red first, of pixels scaled to 0..1
    std: Channels
    middle: float = 1.0  # side of the centre crop that is resized, as a share of the image's shorter side

    def __post_init__(self) -> None:
        # Prepared data and models of earlier versions may have names that are not normalised.
        object.__setattr__(self, "classes", tuple(map(class_name, self.classes)))

    def as_json(self, model: str) -> str:
        """The text of model.json for the model of that name."""
        return json.dumps({"model": model, **asdict(self)}, indent=2) + "\n"


@dataclass(frozen=True)
class Data:
    """A loaded data set."""

    train: Split
    evaluation: Split
    signature: Signature
    eval_split: str = "test"  # what the authors of the data set call the evaluation half
    sizes: str = ""  # a remark if images have several sizes

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.signature.classes)

    @property
    def image_size(self) -> int:
        """The side of the images in a batch, in pixels."""
        return self.signature.image_size


@dataclass(frozen=True)
class Request:
    """The input of a loader, which reads no settings and no environment itself."""

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
    first_size: int | None = None  # image side in the first epoch, from which it grows to the full size
    epochs: int = 1
    decodes_on_gpu: bool = False
    by_processes: bool = False  # decode in `workers` processes, not threads


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation per channel, red first, of pixels scaled to 0..1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


DIGITS = Normalisation((0.3060,) * 3, (0.3237,) * 3)
# Of the 50,000 training images of the archive.
CIFAR10 = Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
# https://docs.pytorch.org/vision/stable/models.html: what torchvision's weights expect.
IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def from_json(text: str | bytes, source: Path) -> tuple[str, Signature]:
    """Parse the model's name and signature from a model.json.  Raises SettingsError naming `source`."""
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("model"), str):
        raise _unusable(source)
    return content["model"], from_values(content, source)


def from_values(content: Any, source: Path) -> Signature:
    """Parse the signature from the values of a model.json or a checkpoint.  Raises SettingsError naming `source`."""
    try:
        if isinstance(content["classes"], str):
            raise _unusable(source)
        signature = Signature(
            classes=tuple(content["classes"]),
            image_size=content["image_size"],
            mean=_channels(content["mean"]),
            std=_channels(content["std"]),
            middle=float(content["middle"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _unusable(source) from error
    if not _is_valid(signature):
        raise _unusable(source)
    return signature


def _channels(values: Any) -> Channels:
    red, green, blue = (float(value) for value in values)
    return red, green, blue


def _is_valid(signature: Signature) -> bool:
    numbers = (*signature.mean, *signature.std, signature.middle)
    return (
        all(isinstance(name, str) for name in signature.classes)
        and len(signature.classes) > 0
        and type(signature.image_size) is int
        and 1 <= signature.image_size <= 1024
        and all(map(math.isfinite, numbers))
        and min(signature.std) > 0
        and 0 < signature.middle <= 1
    )


def _unusable(source: Path) -> SettingsError:
    return SettingsError(
        f"{source} does not describe the model's classes and images; give a run made with this version of the trainer."
    )
