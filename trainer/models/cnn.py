"""A small network for CPUs and tests.

It has no batch norm, so an image's gradient does not depend on the other images of its batch: the same global batch
gives the same update on any number of ranks.
"""

from torch import Tensor, nn

from trainer.errors import DataError, SettingsError

WIDTHS = (32, 64, 128)
SHRINKS = 2 ** len(WIDTHS)
# Larger feature maps are averaged down to about this side: without that, the linear layer has 100 million weights at
# 224 px, and learns nothing.
USUAL_MAP = 4
# Small initial logits keep SGD stable at its default rate of 0.1 without batch norm.
LOGIT_SCALE = 0.25


class Cnn(nn.Module):
    """Three convolutions, each to half the resolution, and one linear layer; 186,538 parameters at 32 px."""

    def __init__(self, classes: int, image_size: int) -> None:
        super().__init__()
        self.image_shape = (3, image_size, image_size)
        self.blocks = nn.Sequential(_block(3, WIDTHS[0]), _block(WIDTHS[0], WIDTHS[1]), _block(WIDTHS[1], WIDTHS[2]))
        side = image_size // SHRINKS
        window = max(1, side // USUAL_MAP)
        # Not AdaptiveAvgPool2d, whose gradient is not deterministic on a GPU.
        self.pool = nn.AvgPool2d(window) if window > 1 else nn.Identity()
        self.head = nn.Linear(WIDTHS[-1] * (side // window) ** 2, classes)

    def forward(self, images: Tensor) -> Tensor:
        """images (B, 3, S, S) float -> logits (B, classes).  Raises DataError for any other shape."""
        if tuple(images.shape[1:]) != self.image_shape:
            raise DataError(
                f"cnn got images of shape {tuple(images.shape)} and takes (batch, 3, S, S) with S = "
                f"{self.image_shape[-1]}; make --image-size the size that the data set gives."
            )
        logits: Tensor = self.head(self.pool(self.blocks(images)).flatten(1)) * LOGIT_SCALE
        return logits


def build(name: str, classes: int, image_size: int) -> nn.Module:
    """Build the model: images (B, 3, S, S) float -> logits (B, classes).  Raises SettingsError unless 8 divides S."""
    if image_size % SHRINKS:
        nearest = max(1, round(image_size / SHRINKS)) * SHRINKS
        raise SettingsError(
            f"cnn takes image sizes that {SHRINKS} divides, not {image_size}; try --image-size {nearest}."
        )
    return Cnn(classes, image_size)


def _block(before: int, after: int) -> nn.Sequential:
    # Group norm is independent of the batch; without any norm, this network does not train at SGD's default rate.
    return nn.Sequential(
        nn.Conv2d(before, after, 4, stride=2, padding=1), nn.GroupNorm(4, after), nn.ReLU(inplace=True)
    )
