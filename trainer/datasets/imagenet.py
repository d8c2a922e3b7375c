"""ImageNet, or any other set of big images: train and val by class, in folders or shards, read as it is needed."""

from trainer.datasets.base import Data, Request
from trainer.datasets.halves import find_halves
from trainer.datasets.streaming import SIDE, stream


def load(request: Request) -> Data:
    """Crops of 224 pixels unless asked otherwise.  Raises DataError when the data are not as they should be."""
    return stream(request, find_halves(request), request.image_size or SIDE)
