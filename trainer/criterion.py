"""The training loss: cross-entropy over the images that could be read; others have no effect."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainer.config import TrainConfig


def criterion_of(config: TrainConfig) -> Callable[[Tensor, Tensor], Tensor]:
    """logits (B, K), labels (B,) -> () mean loss, as the settings ask for it."""
    if config.max_bad_images:
        return partial(mean_over_readable, label_smoothing=config.label_smoothing)
    return nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)


def mean_over_readable(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """As torch's mean, but 0 with gradients of 0, not NaN, for a batch in which no image could be read."""
    total = cross_entropy(logits, labels, reduction="sum", label_smoothing=label_smoothing)
    return total / (labels >= 0).sum().clamp(min=1)


def guard_of(config: TrainConfig, model: nn.Module) -> Callable[[Tensor], AbstractContextManager[object]]:
    """labels (B,) -> the context in which the batch passes `model`."""
    buffers = list(model.buffers())
    return partial(unread_leave_no_trace, buffers) if config.max_bad_images and buffers else nullcontext


@contextmanager
def unread_leave_no_trace(buffers: Sequence[Tensor], labels: Tensor) -> Iterator[None]:
    """Inside, a batch passes a model with these `buffers`, such as batch norm's; afterwards they are as before where
    no image of it could be read.  Waits for no device.
    """
    before = [buffer.clone() for buffer in buffers]
    yield
    is_readable = (labels >= 0).any()
    for buffer, was in zip(buffers, before, strict=True):
        buffer.copy_(torch.where(is_readable, buffer, was))
