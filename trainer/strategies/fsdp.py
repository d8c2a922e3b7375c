"""torch's FSDP2: weights, gradients and optimizer state are sharded over the ranks."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from trainer.config import TrainConfig
from trainer.distributed.session import Session
from trainer.strategies.base import Wrapped

# Smaller modules are sharded with their parent: below this a separate collective costs more than it saves.
SHARD_FROM_PARAMETERS = 100_000


def wrap(model: nn.Module, images: Tensor, config: TrainConfig, session: Session) -> Wrapped:
    """Shard `model` in place.  Collective."""
    mesh = init_device_mesh(session.device.type, (session.ranks.world_size,))
    for part in model.children():
        if sum(weight.numel() for weight in part.parameters()) >= SHARD_FROM_PARAMETERS:
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert isinstance(model, FSDPModule)
    for part in model.modules():
        # The first unshard allocates buffers.  Under inference mode, in an evaluation, training could not use them.
        if isinstance(part, FSDPModule):
            part.unshard()
            part.reshard()

    @contextmanager
    def no_sync() -> Iterator[None]:
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)

    return Wrapped(
        train=model,
        plain=model,
        replicas=session.ranks.world_size,
        first_replica=session.ranks.rank,
        no_sync=no_sync,
        communicates=session.ranks.world_size > 1,
        collective_forward=True,
        whole=partial(whole, keep=session.ranks.is_head),
        whole_is_new=True,
        split=split,
    )


def whole(tree: Any, *, keep: bool) -> Any:
    """`tree` with every sharded tensor gathered on the CPU, one at a time; empty unless `keep`.  Collective.

    All gathered tensors together might not fit on the GPU.  None shares memory with `tree`, so that training can
    continue without another copy.
    """
    if isinstance(tree, DTensor):
        full = tree.full_tensor()
        if not keep:
            return full.new_empty(0)
        # A single rank gets its own memory back; with uneven shards, the result is part of a larger buffer.
        storage, own = full.untyped_storage(), tree.to_local().untyped_storage()
        is_new = storage.data_ptr() != own.data_ptr() and storage.nbytes() == full.nbytes
        return full.to("cpu", copy=not is_new)
    if isinstance(tree, Tensor):
        return tree.detach().to("cpu", copy=True) if keep else tree
    if isinstance(tree, dict):
        return {key: whole(value, keep=keep) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [whole(value, keep=keep) for value in tree]
    return tree


def split(tree: Any, like: Any) -> Any:
    """`tree` with each full tensor sharded like the corresponding one in `like`.  Collective."""
    if isinstance(like, DTensor) and isinstance(tree, torch.Tensor):
        return distribute_tensor(tree.to(like.device), like.device_mesh, like.placements)
    if isinstance(tree, dict) and isinstance(like, dict):
        return {key: split(value, like.get(key)) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)) and isinstance(like, (list, tuple)):
        return [split(value, other) for value, other in zip(tree, like, strict=True)]
    return tree
