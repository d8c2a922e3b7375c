"""A moving average of the weights, which often evaluates better than the weights themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """The moving average of a model's weights, on the same device and, under FSDP, with the same shards.

    Batch-norm statistics stay the model's own: they are running averages already, and averaging them
    once more would make them lag behind the averaged weights.

    model: the bare one, placed and sharded already.  decay: share of the old average kept per update.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model = model
        self._decay = decay
        self._updates = 0
        self._own = {name: weight.detach() for name, weight in model.named_parameters()}
        self._average = {name: weight.clone() for name, weight in self._own.items()}

    def update(self) -> None:
        """Takes the weights as they are after an update into the average; never waits for the device."""
        torch._foreach_lerp_(list(self._average.values()), list(self._own.values()), 1 - self.decay())
        self._updates += 1

    def decay(self) -> float:
        """The decay of the next update: lower at first, or a short run would end on its initial weights.

        TensorFlow's ExponentialMovingAverage with num_updates: 0.1, 0.18, 0.25 ... up to the one given.
        """
        return min(self._decay, (1 + self._updates) / (10 + self._updates))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own, bit for bit, also after an error."""
        own = {name: weight.clone() for name, weight in self._own.items()}
        self._write(self._average)
        try:
            yield
        finally:
            self._write(own)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: {"updates": int, "weights": {name: tensor}}; the tensors are live, not copies."""
        return {"updates": self._updates, "weights": dict(self._average)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what state() returned, for a model with the same names and shards."""
        self._updates = state["updates"]
        _copy(self._average, state["weights"])

    def _write(self, weights: dict[str, Tensor]) -> None:
        # In place, so that DDP's buckets, CUDA graphs and compiled code still see the weights they know.
        _copy(self._own, weights)
        for module in self._model.modules():
            # An FSDPModule's, whose import would slow every start down.  After a forward pass the root keeps
            # gathered weights, which would now be the old ones.
            reshard: Any = getattr(module, "reshard", None)
            if reshard is not None:
                reshard()


@torch.no_grad()
def _copy(into: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
    for name, weight in into.items():
        weight.copy_(weights[name])
