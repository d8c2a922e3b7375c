"""VGG-11 (Simonyan and Zisserman 2014): a common CIFAR-10 variant at 32 px, torchvision's at large sizes."""

import torchvision
from torch import nn

from trainer.errors import SettingsError

CIFAR_PX = 32
LARGE_PX = 65
# Output channels of each 3x3 convolution; "pool" halves the resolution: 32 px become 1.
LAYERS: tuple[int | str, ...] = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def build(name: str, classes: int, image_size: int) -> nn.Module:
    """Build the model: images (B, 3, S, S) float -> logits (B, classes).  Raises SettingsError for sizes in between."""
    if image_size == CIFAR_PX:
        return nn.Sequential(*_features(), nn.Flatten(), nn.Linear(512, classes))
    if image_size >= LARGE_PX:
        large: nn.Module = torchvision.models.vgg11(num_classes=classes)
        return large
    raise SettingsError(
        f"vgg11 takes images of {CIFAR_PX} px or of {LARGE_PX} px and more, not {image_size} px; "
        f"take --image-size {CIFAR_PX} or --model resnet18."
    )


def _features() -> list[nn.Module]:
    """The convolutional layers: (B, 3, 32, 32) -> (B, 512, 1, 1)."""
    layers: list[nn.Module] = []
    width = 3
    for layer in LAYERS:
        if isinstance(layer, str):
            layers.append(nn.MaxPool2d(2))
        else:
            # Batch norm makes the bias redundant; it is kept so that weights of the common variant can be loaded.
            layers += [nn.Conv2d(width, layer, 3, padding=1), nn.BatchNorm2d(layer), nn.ReLU(inplace=True)]
            width = layer
    return layers
