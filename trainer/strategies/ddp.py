"""torch's DistributedDataParallel: every rank holds the model, gradients are averaged while they appear."""

from inspect import signature
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer.config import TrainConfig
from trainer.distributed.session import Session
from trainer.strategies.base import Wrapped
from trainer.strategies.hooks import register_hook

# torch 2.13 gave it a new name and warns about the old one.
_NAMES = signature(DistributedDataParallel).parameters
_NO_BUFFER_SYNC: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False
}


def wrap(model: nn.Module, config: TrainConfig, session: Session) -> Wrapped:
    """Collective: rank 0's weights are copied to all ranks."""
    parallel = DistributedDataParallel(
        model,
        bucket_cap_mb=config.bucket_cap_mb,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        static_graph=config.static_graph,
        # Saves a broadcast a step of statistics that training never reads; they are averaged before they are used.
        **_NO_BUFFER_SYNC,
    )
    register_hook(parallel, config, session.device)
    return Wrapped(
        train=parallel,
        plain=model,
        replicas=session.ranks.world_size,
        first_replica=session.ranks.rank,
        no_sync=parallel.no_sync,
        communicates=session.ranks.world_size > 1,
    )
