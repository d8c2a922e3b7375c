"""ResNet-18 (He et al. 2015) from torchvision, with a stem that fits the size of the images."""

import torchvision
from torch import nn

# torchvision's stem reduces the resolution 4-fold before the first block, so CIFAR images would be 1 x 1 at the end.
SMALL_IMAGE_PX = 64


def build(name: str, classes: int, image_size: int) -> nn.Module:
    """Build the model: images (B, 3, S, S) float -> logits (B, classes); up to 64 px with CIFAR's stem."""
    model: nn.Module = torchvision.models.resnet18(num_classes=classes)
    if image_size <= SMALL_IMAGE_PX:
        model.conv1 = _small_stem()
        model.maxpool = nn.Identity()
    return model


def _small_stem() -> nn.Conv2d:
    """A 3x3 convolution with stride 1, initialised like torchvision's."""
    stem = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    return stem
