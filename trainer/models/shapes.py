"""Check whether a model supports an image size, on shapes alone."""

from itertools import chain

import torch
from torch import nn
from torch.func import functional_call


def run_on_shapes(model: nn.Module, image_size: int, images: int = 2) -> None:
    """Run `model` on images of `image_size` px on the meta device.  Raises any error that it raises for that size.

    Takes well under a second, and does not change weights, batch-norm statistics or random state.
    """
    tensors = chain(model.named_parameters(), model.named_buffers())
    shapes = {key: tensor.detach().to("meta") for key, tensor in tensors}
    functional_call(model, shapes, (torch.empty(images, 3, image_size, image_size, device="meta"),))
