"""The handwritten digits that ship with scikit-learn: 1,797 real images of 8x8 pixels, no download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.datasets import SMALL_PX
from trainer.datasets.base import DIGITS, Data, Request
from trainer.datasets.resident import Decoded, Images, resident_data, resized

BRIGHTEST = 16  # pixel values are 0..16
HELD_OUT = 5  # every fifth image of a class is for evaluation


def load(request: Request) -> Data:
    """Load 1,437 training and 360 evaluation images, always the same; never mirrored."""
    return resident_data(_decode(request.image_size or SMALL_PX), "0123456789", DIGITS, flip=False, request=request)


def _decode(side: int) -> Decoded:
    table = torch.from_numpy(_read_table())
    grey = (table[:, :-1].view(-1, 8, 8) * (255 / BRIGHTEST)).round().to(torch.uint8)
    labels = table[:, -1].long()
    pixels = resized(grey[..., None].expand(-1, -1, -1, 3), side)
    held_out = stratified(labels)
    return Decoded(
        Images(pixels[~held_out], labels[~held_out]),
        Images(pixels[held_out], labels[held_out]),
        classes=10,
    )


def _read_table() -> NDArray[np.float64]:
    """(N, 65): 64 pixels and the label of each image, as in sklearn.datasets.load_digits.

    Does not import scikit-learn, which takes seconds.
    """
    package = find_spec("sklearn")
    assert package is not None, "pyproject.toml requires scikit-learn"
    assert package.origin is not None
    return np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")


def stratified(labels: Tensor) -> Tensor:
    """(N,) bool: true for a fifth of the images of every class."""
    by_class = labels.argsort(stable=True)
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    held_out[by_class[::HELD_OUT]] = True
    return held_out
