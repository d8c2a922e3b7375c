"""Any torchvision classifier by name, with a clear error if it does not support the image size."""

from typing import Any

import torchvision
from torch import nn

from trainer.errors import SettingsError
from trainer.models.shapes import run_on_shapes

# Every torchvision classifier takes this size.
USUAL_PX = 224


def build(name: str, classes: int, image_size: int) -> nn.Module:
    """Build a model: images (B, 3, S, S) float -> logits (B, classes).  Raises SettingsError for a wrong size."""
    try:
        model: nn.Module = torchvision.models.get_model(name, num_classes=classes, **_options(name, image_size))
    except (AssertionError, ValueError) as error:
        raise _refusal(name, image_size, error) from error
    _try_size(name, model, image_size)
    return model


def _options(name: str, image_size: int) -> dict[str, Any]:
    """Constructor arguments that some families need."""
    if name in ("googlenet", "inception_v3"):
        # Auxiliary heads make the output a tuple; init_weights only silences a warning about its default.
        return {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        return {"image_size": image_size}
    if name.startswith("maxvit_"):
        return {"input_size": (image_size, image_size)}
    return {}


def _try_size(name: str, model: nn.Module, image_size: int) -> None:
    """Raise SettingsError unless `model` can train on images of `image_size` px."""
    try:
        run_on_shapes(model, image_size)
    except (AssertionError, RuntimeError, ValueError) as error:
        raise _refusal(name, image_size, error) from error


def _refusal(name: str, image_size: int, error: Exception) -> SettingsError:
    return SettingsError(
        f"{name} cannot take images of {image_size} px ({str(error).splitlines()[0]}); "
        f"take --image-size {USUAL_PX}, or --model resnet18, which takes any size."
    )
