"""torch's DataParallel: one process drives all GPUs.  Only for comparisons; ddp is faster."""

import torch
from torch import Tensor, nn

from trainer.config import TrainConfig
from trainer.distributed.session import Session
from trainer.errors import SettingsError
from trainer.optimizers.precision import autocast, pick_precision
from trainer.strategies.base import Wrapped


class InPrecision(nn.Module):
    """A model that enters autocast itself, because DataParallel's threads would always use fp16."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model, self._precision = model, precision

    def forward(self, images: Tensor) -> Tensor:
        """images: (B, 3, H, W) -> logits (B, K)."""
        with autocast(self._precision, images.device):
            logits: Tensor = self.model(images)
        return logits


def wrap(model: nn.Module, images: Tensor, config: TrainConfig, session: Session) -> Wrapped:
    """Wrap `model` in DataParallel.  Raises SettingsError without a GPU or with several processes."""
    if session.device.type != "cuda":
        raise SettingsError("--strategy dp splits batches over GPUs and this process has none; take --strategy single.")
    if session.ranks.world_size > 1:
        raise SettingsError(
            f"--strategy dp is one process for all GPUs, but {session.ranks.world_size} ranks were started; "
            "take --strategy ddp."
        )
    gpus = torch.cuda.device_count()
    parallel = nn.DataParallel(InPrecision(model, pick_precision(config, session.device)))
    return Wrapped(train=parallel, plain=model, replicas=gpus, replicas_here=gpus)
