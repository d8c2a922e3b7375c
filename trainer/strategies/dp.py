"""torch's DataParallel: one process drives all GPUs.  Here to be compared with; ddp is faster."""

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.distributed import Session
from trainer.errors import SettingsError
from trainer.strategies.base import Wrapped


def wrap(model: nn.Module, config: TrainConfig, session: Session) -> Wrapped:
    """Raises SettingsError without a GPU or with several processes."""
    if session.device.type != "cuda":
        raise SettingsError("--strategy dp splits batches over GPUs and this process has none; take --strategy single.")
    if session.ranks.world_size > 1:
        raise SettingsError(
            f"--strategy dp is one process for all GPUs, but {session.ranks.world_size} ranks were started; "
            "take --strategy ddp."
        )
    gpus = torch.cuda.device_count()
    # Evaluation may use all GPUs too: the forward pass only scatters and gathers.
    parallel = nn.DataParallel(model)
    return Wrapped(train=parallel, plain=model, replicas=gpus, replicas_here=gpus)
