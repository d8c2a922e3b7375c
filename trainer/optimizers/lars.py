"""Layer-wise adaptive rate scaling for large batches (You et al. 2017), from pytorch_optimizer."""

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.optimizers.groups import decay_groups, weight_decay
from trainer.optimizers.schedule import peak_lr


def build(model: nn.Module, config: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    """LARS over the model's trainable parameters; norms and biases get plain SGD at the same rate.

    A step overwrites the gradients.  Raises SettingsError without pytorch_optimizer, or for --fused.
    """
    try:
        from pytorch_optimizer import LARS  # here, because it takes 1.6 s
    except ImportError as error:
        raise SettingsError(
            "--optimizer lars needs the package pytorch_optimizer; "
            "pip install -c constraints.txt -e . in the checkout brings it."
        ) from error
    if config.fused:
        raise SettingsError("lars has no fused kernels; drop --fused, or take --optimizer sgd.")
    optimizer: torch.optim.Optimizer = LARS(
        decay_groups(model.parameters(), weight_decay(config)),
        lr=peak_lr(config),
        momentum=config.momentum,
        nesterov=config.nesterov,
    )
    return optimizer
