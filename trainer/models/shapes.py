"""Whether a model takes images of some size, found out on shapes alone."""

from itertools import chain

import torch
from torch import nn
from torch.func import functional_call


def run_on_shapes(model: nn.Module, image_size: int, images: int = 2) -> None:
    """Runs `model` on so many images of `image_size` px, on the meta device.  Raises whatever it raises for that size.

    That takes well under a second and leaves weights, batch-norm statistics and random numbers as they are.
    """
    tensors = chain(model.named_parameters(), model.named_buffers())
    shapes = {key: tensor.detach().to("meta") for key, tensor in tensors}
    functional_call(model, shapes, (torch.empty(images, 3, image_size, image_size, device="meta"),))
