"""What a strategy makes of a model, the same for all of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

Tree = TypeVar("Tree")


def _unchanged(tree: Tree) -> Tree:
    return tree


def _unchanged_like(tree: Tree, like: Any) -> Tree:
    return tree


@dataclass(frozen=True)
class Wrapped:
    """A model ready for its ranks.

    train: what a training step calls; plain: the same weights without communication, for evaluation
    and checkpoints.  replicas: GPUs or CPU ranks that share one update, of which this process drives
    `replicas_here`, starting with number `first_replica`.
    collective_forward: even `plain` communicates, so all ranks must call it equally often.
    whole / split: put a tree of this rank's tensors together, on rank 0, and take one apart again (`like`
    gives the layout).  Both collective where the weights are sharded.
    """

    train: nn.Module
    plain: nn.Module
    replicas: int = 1
    first_replica: int = 0
    replicas_here: int = 1
    no_sync: Callable[[], AbstractContextManager[None]] = nullcontext
    communicates: bool = False
    collective_forward: bool = False
    whole: Callable[[Any], Any] = _unchanged
    split: Callable[[Any, Any], Any] = _unchanged_like
