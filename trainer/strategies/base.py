"""The interface of all strategies: a model wrapped for training on several ranks."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

if TYPE_CHECKING:
    from trainer.strategies.ddp import PowerSGD

Tree = TypeVar("Tree")


def _unchanged(tree: Tree) -> Tree:
    return tree


def _unchanged_like(tree: Tree, like: Any) -> Tree:
    return tree


@dataclass(frozen=True)
class Wrapped:
    """A model wrapped for training on several ranks."""

    train: nn.Module  # called by a training step
    plain: nn.Module  # the same weights without communication, for evaluation and checkpoints
    replicas: int = 1  # GPUs or CPU ranks that share one update
    first_replica: int = 0  # number of the first replica of this process
    replicas_here: int = 1  # number of replicas of this process
    no_sync: Callable[[], AbstractContextManager[None]] = nullcontext  # inside, gradients are not exchanged
    communicates: bool = False
    collective_forward: bool = False  # even `plain` communicates, so all ranks must call it equally often
    compression: "PowerSGD | None" = None  # gradient compression that is kept from update to update
    # Gathers a tree of sharded tensors on rank 0.  Collective if the weights are sharded.
    whole: Callable[[Any], Any] = _unchanged
    whole_is_new: bool = False  # the result of whole() is on the CPU, and shares no memory with the training
    # Shards a tree of full tensors with the layout of a second tree.  Collective if the weights are sharded.
    split: Callable[[Any, Any], Any] = _unchanged_like
