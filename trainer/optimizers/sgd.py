"""Stochastic gradient descent with (Nesterov) momentum."""

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.optimizers.groups import decay_groups, use_fused, weight_decay
from trainer.optimizers.schedule import peak_lr


def build(model: nn.Module, config: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    """SGD over the model's trainable parameters."""
    return torch.optim.SGD(
        decay_groups(model.parameters(), weight_decay(config)),
        lr=peak_lr(config),
        momentum=config.momentum,
        nesterov=config.nesterov and config.momentum > 0,
        fused=use_fused(config, device),
    )
