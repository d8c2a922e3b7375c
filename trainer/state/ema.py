"""Exponential moving average of the weights, which often scores better than the weights themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """Moving average of a model's weights, on the same device and, under FSDP, with the same shards.

    Batch-norm statistics are not averaged: they are running averages already, and averaging them again would make them
    lag behind the averaged weights.

    model: without wrappers, already placed and sharded.  decay: share of the old average kept per update.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model = model
        self._decay = decay
        self._updates = 0
        self._own = {name: weight.detach() for name, weight in model.named_parameters()}
        self._average = {name: weight.clone() for name, weight in self._own.items()}

    def update(self) -> None:
        """Add the current weights to the average, after an update.  Does not wait for the device."""
        torch._foreach_lerp_(list(self._average.values()), list(self._own.values()), 1 - self.decay())
        self._updates += 1

    def decay(self) -> float:
        """The decay of the next update, lower at first, so that a short run does not keep its initial weights.

        As TensorFlow's ExponentialMovingAverage with num_updates: 0.1, 0.18, 0.25 ... up to the given decay.
        """
        return min(self._decay, (1 + self._updates) / (10 + self._updates))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averaged weights inside the block; restore the model's own bit for bit, also after an error."""
        own = {name: weight.clone() for name, weight in self._own.items()}
        self._write(self._average)
        try:
            yield
        finally:
            self._write(own)

    def state(self) -> dict[str, Any]:
        """State for a checkpoint: {"updates": int, "weights": {name: tensor}}; tensors are not copied."""
        return {"updates": self._updates, "weights": dict(self._average)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the result of state(), for a model with the same names and shards."""
        self._updates = state["updates"]
        _copy(self._average, state["weights"])

    def _write(self, weights: dict[str, Tensor]) -> None:
        # In place, so that DDP's buckets, CUDA graphs and compiled code keep using the same tensors.
        _copy(self._own, weights)
        for module in self._model.modules():
            # FSDPModule has this method; importing it to check the type would slow down every start.  After a
            # forward pass the root module keeps gathered weights, which are now outdated.
            reshard: Any = getattr(module, "reshard", None)
            if reshard is not None:
                reshard()


@torch.no_grad()
def _copy(into: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
    for name, weight in into.items():
        weight.copy_(weights[name])
