"""The interface that all strategies share: a model that is ready to train on its ranks."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import nn

Tree = TypeVar("Tree")


def _unchanged(tree: Tree) -> Tree:
    return tree


def _unchanged_like(tree: Tree, like: Any) -> Tree:
    return tree


class Compression(Protocol):
    """The state that gradient compression keeps on this rank from update to update."""

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, copied to the CPU."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what state() returned, for a model with the same buckets."""
        ...


@dataclass(frozen=True)
class Wrapped:
    """A model ready for its ranks.

    train: what a training step calls; plain: the same weights without communication, for evaluation
    and checkpoints.  replicas: GPUs or CPU ranks that share one update, of which this process drives
    `replicas_here`, starting with number `first_replica`.
    collective_forward: even `plain` communicates, so all ranks must call it equally often.
    compression: what has to be kept for the next update, or None.
    whole / split: put a tree of this rank's tensors together, on rank 0, and take one apart again (`like`
    gives the layout).  Both collective where the weights are sharded.  whole_is_new: what whole() returns shares no
    memory with the training, and lies on the CPU.
    """

    train: nn.Module
    plain: nn.Module
    replicas: int = 1
    first_replica: int = 0
    replicas_here: int = 1
    no_sync: Callable[[], AbstractContextManager[None]] = nullcontext
    communicates: bool = False
    collective_forward: bool = False
    compression: Compression | None = None
    whole: Callable[[Any], Any] = _unchanged
    whole_is_new: bool = False
    split: Callable[[Any, Any], Any] = _unchanged_like
