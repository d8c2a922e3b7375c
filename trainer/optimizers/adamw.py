"""Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.optimizers.groups import decay_groups, use_fused, weight_decay
from trainer.optimizers.schedule import peak_lr


def build(model: nn.Module, config: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    """AdamW over the model's trainable parameters."""
    groups = decay_groups(model.parameters(), weight_decay(config))
    return torch.optim.AdamW(groups, lr=peak_lr(config), fused=use_fused(config, device))
