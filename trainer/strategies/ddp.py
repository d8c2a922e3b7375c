"""torch's DistributedDataParallel: every rank holds the model, gradients are averaged while they appear."""

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
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


def wrap(model: nn.Module, images: Tensor, config: TrainConfig, session: Session) -> Wrapped:
    """Collective: rank 0's weights are copied to all ranks."""
    parallel = DistributedDataParallel(
        model,
        bucket_cap_mb=config.bucket_cap_mb,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        static_graph=config.static_graph,
        # Saves a broadcast a step of statistics that training never reads; they are averaged before they are used.
        **_NO_BUFFER_SYNC,
    )
    settle_buckets(parallel, images)
    return Wrapped(
        train=parallel,
        plain=model,
        replicas=session.ranks.world_size,
        first_replica=session.ranks.rank,
        no_sync=parallel.no_sync,
        communicates=session.ranks.world_size > 1,
        compression=register_hook(parallel, config, session.device),
    )


def settle_buckets(parallel: DistributedDataParallel, images: Tensor) -> None:
    """Lets DDP lay out its buckets now, and leaves everything else as it was.  Collective.

    It does so once, after the first backward pass, in the order in which gradients appeared.  From three
    ranks on the layout decides in which order numbers are added up, so that the first update of a
    resumed run, still with the other layout, would differ in the last bits from an unbroken run's.
    Before a hook is registered: it may remember what lies where.
    """
    buffers = [buffer.clone() for buffer in parallel.module.buffers()]
    with torch.random.fork_rng(devices=[images.device] if images.device.type == "cuda" else []):
        for _ in range(2):  # the second pass lays them out, before it begins
            parallel(images).sum().backward()
    parallel.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, before in zip(parallel.module.buffers(), buffers, strict=True):
            buffer.copy_(before)
