"""Batch-norm statistics: each rank gathers its own, and what is evaluated or kept has the mean of all."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainer.training import Training


@contextmanager
def averaged_statistics(training: Training) -> Iterator[None]:
    """Inside, the model has the mean of all ranks' statistics; afterwards each rank's own, bit for bit.

    So that it changes nothing in a training how often it is evaluated or saved.  Collective.
    """
    buffers = training.wrapped.plain.buffers() if training.wrapped.communicates else ()
    statistics = [buffer for buffer in buffers if buffer.is_floating_point()]
    if not statistics:
        yield
        return
    own = torch.cat([buffer.flatten() for buffer in statistics])
    _write(statistics, training.session.sum(own.clone()) / training.session.ranks.world_size)
    try:
        yield
    finally:
        _write(statistics, own)


def _write(buffers: list[torch.Tensor], flat: torch.Tensor) -> None:
    for buffer, values in zip(buffers, flat.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(values.view_as(buffer))
