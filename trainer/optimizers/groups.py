"""Settings shared by all optimizers: weight decay, parameter groups and fused kernels.  Pure."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.optimizers import TABLE


def weight_decay(config: TrainConfig) -> float:
    """config.weight_decay, or the optimizer's default."""
    return TABLE[config.optimizer].weight_decay if config.weight_decay is None else config.weight_decay


def decay_groups(parameters: Iterable[nn.Parameter], decay: float) -> list[dict[str, Any]]:
    """Parameter groups: matrices and filters with weight decay, norms and biases without; frozen ones are left out.

    Weight decay of scales and biases only hurts: https://arxiv.org/abs/1812.01187, section 3.1.
    """
    trained = [p for p in parameters if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def use_fused(config: TrainConfig, device: torch.device) -> bool | None:
    """The value of torch's `fused` argument: True, or None, as False would disable the foreach kernels too.

    On by default: on a CPU fused kernels take a third to a half of the time (tests/bench/RESULTS.md).  Off by default
    with fsdp: DTensor has no sharding strategy for some fused kernels, such as sgd's.
    """
    if config.fused is None:
        return (config.strategy != "fsdp" and device.type in ("cuda", "cpu")) or None
    return config.fused or None
