"""ImageNet, or any other tree of big images: train/ and val/ with one folder per class, read as it is needed."""

from trainer.datasets.base import Data, Request
from trainer.datasets.streaming import SIDE, stream
from trainer.datasets.tree import find_tree


def load(request: Request) -> Data:
    """Crops of 224 pixels unless asked otherwise.  Raises DataError when the tree is not as it should be."""
    return stream(request, find_tree(request.data_dir), request.image_size or SIDE)
