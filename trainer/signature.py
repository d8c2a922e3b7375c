"""A model's input and output, saved with a run so that its weights can be used without its data.

Torch-free.  model.json holds it beside model.pt, and every checkpoint holds it, too.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.datasets.tree import class_name
from trainer.errors import SettingsError

Channels = tuple[float, float, float]


@dataclass(frozen=True)
class Signature:
    """How an image becomes the input of a model, and what its outputs are called.

    classes: their names, in the order of the outputs.  image_size: pixels a side.  mean, std: per channel, red
    first, of pixels scaled to 0..1.  middle: the square that is cut out of an image's middle and resized, as a
    share of the image's shorter side.
    """

    classes: tuple[str, ...]
    image_size: int
    mean: Channels
    std: Channels
    middle: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(map(class_name, self.classes)))  # the data, or a model, may be older

    def as_json(self, model: str) -> str:
        """The text of model.json for the model of that name."""
        return json.dumps({"model": model, **asdict(self)}, indent=2) + "\n"


def from_json(text: str | bytes, source: Path) -> tuple[str, Signature]:
    """The model's name and signature in a model.json.  Raises SettingsError naming `source`."""
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("model"), str):
        raise _unusable(source)
    return content["model"], from_values(content, source)


def from_values(content: Any, source: Path) -> Signature:
    """The signature among the values of a model.json or a checkpoint.  Raises SettingsError naming `source`."""
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
    if not _is_sound(signature):
        raise _unusable(source)
    return signature


def _channels(values: Any) -> Channels:
    red, green, blue = (float(value) for value in values)
    return red, green, blue


def _is_sound(signature: Signature) -> bool:
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
        f"{source} does not say what the model's classes and images are; give a run of this version of the trainer."
    )
