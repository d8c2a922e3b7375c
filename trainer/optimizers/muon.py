"""Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon/) for the hidden layers, AdamW for the rest.

torch.optim.Muon takes matrices only, so convolution filters (O, I, h, w) are passed as (O, I*h*w).
"""

from typing import Any

import torch
from torch import Tensor, nn

from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.optimizers.groups import decay_groups, use_fused, weight_decay
from trainer.optimizers.schedule import peak_lr

# Muon's default rate is 0.02 and AdamW's 1e-3; with this ratio one --lr and one schedule work for both.
ADAMW_SHARE = 1 / 20


class MuonWithAdamW(torch.optim.Optimizer):
    """A combined optimizer: Muon for the first parameter group, AdamW for the others.

    Each step creates torch's two optimizers with the current groups and state, so setting a rate, loading a state and
    moving the model work as usual.
    """

    def __init__(self, hidden: dict[str, Any], rest: list[dict[str, Any]], lr: float) -> None:
        """hidden, rest: groups with arguments of torch's Muon and AdamW; lr: Muon's; AdamW gets ADAMW_SHARE of it."""
        super().__init__([hidden, *rest], {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Do one update; weights without a gradient do not change."""
        hidden, *rest = self.param_groups
        self._step_muon(hidden)
        self._step_adamw(rest)

    def _step_muon(self, group: dict[str, Any]) -> None:
        weights = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        matrices = [_matrix(weight) for weight in weights]
        settings = {key: value for key, value in group.items() if key != "params"}
        muon: torch.optim.Optimizer = torch.optim.Muon(matrices, **settings)
        muon.state.update((matrix, self.state[weight]) for matrix, weight in zip(matrices, weights, strict=True))
        muon.step()
        for matrix, weight in zip(matrices, weights, strict=True):
            weight.copy_(matrix.view(weight.shape))

    def _step_adamw(self, groups: list[dict[str, Any]]) -> None:
        adamw = torch.optim.AdamW([{**group, "lr": group["lr"] * ADAMW_SHARE} for group in groups])
        adamw.state = self.state
        adamw.step()


def build(model: nn.Module, config: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    """Muon over the hidden layers, AdamW over the others.  Raises SettingsError for old torch or no hidden layer."""
    if not hasattr(torch.optim, "Muon"):
        raise SettingsError(
            f"--optimizer muon needs torch 2.9 or newer and this is {torch.__version__}; update torch or take sgd."
        )
    weights = hidden_weights(model)
    if not weights:
        raise SettingsError("muon is for hidden layers, and this model has none; take --optimizer adamw.")
    hidden = {
        "params": weights,
        "weight_decay": weight_decay(config),
        "momentum": config.momentum,
        "nesterov": config.nesterov,
    }
    hidden_ids = {id(weight) for weight in weights}
    others = (p for p in model.parameters() if id(p) not in hidden_ids)
    rest = decay_groups(others, weight_decay(config))
    fused = use_fused(config, device)
    return MuonWithAdamW(hidden, [{**group, "fused": fused} for group in rest], peak_lr(config))


def hidden_weights(model: nn.Module) -> list[nn.Parameter]:
    """The matrices and filters of the model, except for the first layer and the classifier.

    Orthogonal updates do not suit these two, nor the 3-D tokens and positions of vision transformers.
    """
    return [p for p in model.parameters() if p.ndim in (2, 4) and p.requires_grad][1:-1]


def _matrix(weight: Tensor) -> Tensor:
    """weight (O, ...) -> a copy (O, N) with its gradient; the order of columns does not depend on the memory format.

    A view would do for contiguous weights, but the cost of the copy is negligible.
    """
    assert weight.grad is not None
    matrix = weight.detach().flatten(1).clone()
    matrix.grad = weight.grad.flatten(1)
    return matrix
