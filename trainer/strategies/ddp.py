"""torch's DistributedDataParallel: every rank has the model, and gradients are averaged during the backward pass."""

from inspect import signature
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from trainer.config import TrainConfig
from trainer.distributed.session import Session
from trainer.strategies.base import Wrapped

# torch 2.13 renamed this parameter, and warns about the old name.
_NAMES = signature(DistributedDataParallel).parameters
_NO_BUFFER_SYNC: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False
}


def wrap(model: nn.Module, images: Tensor, config: TrainConfig, session: Session) -> Wrapped:
    """Wrap `model` in DistributedDataParallel.  Collective: rank 0's weights are copied to all ranks."""
    parallel = DistributedDataParallel(
        model,
        bucket_cap_mb=config.bucket_cap_mb,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        static_graph=config.static_graph,
        # Saves a broadcast of batch-norm statistics in each step; they are averaged before they are used.
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
    """Make DDP rebuild its buckets now, without changing anything else.  Collective.

    DDP does this once, after the first backward pass, in the order in which gradients become ready.  With three or more
    ranks the buckets determine the order of summation, so the first update of a resumed run, before the rebuild, would
    differ in the last bits from that of an uninterrupted run.  Must be called before a hook is registered, as hooks may
    keep state by bucket.
    """
    buffers = [buffer.clone() for buffer in parallel.module.buffers()]
    with torch.random.fork_rng(devices=[images.device] if images.device.type == "cuda" else []):
        for _ in range(2):  # the buckets are rebuilt at the start of the second pass
            parallel(images).sum().backward()
    parallel.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, before in zip(parallel.module.buffers(), buffers, strict=True):
            buffer.copy_(before)


# Until this update gradients are not compressed: the first ones change too fast for error feedback.
POWERSGD_FROM_UPDATE = 10


def register_hook(model: DistributedDataParallel, config: TrainConfig, device: torch.device) -> "PowerSGD | None":
    """Register the gradient compression of config.comm_hook on `model`; returns its state, if it has any."""
    match config.comm_hook:
        case "fp16":
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        case "bf16":
            # torch's own bf16 hook works only with NCCL.
            hook = default_hooks.bf16_compress_hook if device.type == "cuda" else bf16_hook
            model.register_comm_hook(None, hook)
        case "powersgd":
            power_sgd = powerSGD_hook.PowerSGDState(
                process_group=None if device.type == "cuda" else InTurn(),
                matrix_approximation_rank=config.powersgd_rank,
                start_powerSGD_iter=POWERSGD_FROM_UPDATE,
            )
            model.register_comm_hook(power_sgd, powerSGD_hook.powerSGD_hook)
            return PowerSGD(power_sgd, device)
    return None


class InTurn(dist.ProcessGroup):
    """A wrapper of gloo's process group with synchronous all-reduces.

    PowerSGD chains several all-reduces, and a gloo thread would start each one when the previous one is done.  Ranks
    could then be in all-reduces of different buckets at once, which aborts (seen with two buckets on two ranks), and
    the last bits would depend on the thread, as matrix products differ between threads.
    """

    def __init__(self) -> None:
        group = dist.group.WORLD
        assert group is not None
        super().__init__(group.rank(), group.size())
        self._group = group

    def allreduce(self, tensors: Any, options: Any = None) -> Any:  # type: ignore[override]
        """Sum in place, like gloo's allreduce.  Collective."""
        work = self._group.allreduce(tensors, options)
        work.get_future().wait()
        return work


class PowerSGD:
    """The state of PowerSGD (Vogels et al. 2019) on this rank: compression errors and the current factors.

    The errors are added to the next gradients, so a resumed run needs them to continue identically.
    """

    def __init__(self, power_sgd: powerSGD_hook.PowerSGDState, device: torch.device) -> None:
        self._power_sgd, self._device = power_sgd, device

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, on the CPU.  errors, p, q: {bucket: tensor}; randomness: numpy's."""
        memory = self._power_sgd
        name, keys, *rest = memory.rng.get_state(legacy=True)
        return {
            "iterations": memory.iter,
            "randomness": [name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest],
            **{part: _to(tensors, torch.device("cpu")) for part, tensors in self._tensors().items()},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by state(), for a model with the same buckets."""
        name, keys, *rest = state["randomness"]
        self._power_sgd.iter = state["iterations"]
        self._power_sgd.rng.set_state((name, keys.numpy().astype(np.uint32), *rest))
        for part, tensors in self._tensors().items():
            tensors.clear()
            tensors.update(_to(state[part], self._device))

    def _tensors(self) -> dict[str, dict[int, torch.Tensor]]:
        memory = self._power_sgd
        return {"errors": memory.error_dict, "p": memory.p_memory_dict, "q": memory.q_memory_dict}


def _to(tensors: dict[int, torch.Tensor], device: torch.device) -> dict[int, torch.Tensor]:
    return {bucket: tensor.to(device, copy=True) for bucket, tensor in tensors.items()}


def bf16_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """The mean of the ranks' gradients, sent as bf16; works with gloo.  torch requires these parameter names."""
    half = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    sent = dist.all_reduce(half, async_op=True).get_future()
    return sent.then(lambda done: bucket.buffer().copy_(done.value()[0]))
