"""What ddp sends instead of fp32 gradients: half the bytes (fp16, bf16) or a low-rank approximation (PowerSGD)."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from trainer.config import TrainConfig


def register_hook(model: DistributedDataParallel, config: TrainConfig, device: torch.device) -> None:
    """Makes `model` compress its gradients as config.comm_hook says."""
    match config.comm_hook:
        case "fp16":
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        case "bf16":
            # torch's own bf16 hook refuses every back end but NCCL.
            hook = default_hooks.bf16_compress_hook if device.type == "cuda" else bf16_hook
            model.register_comm_hook(None, hook)
        case "powersgd":
            state = powerSGD_hook.PowerSGDState(
                process_group=None, matrix_approximation_rank=config.powersgd_rank, start_powerSGD_iter=10
            )
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def bf16_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """The mean of the ranks' gradients, sent as bf16; works on gloo.  torch asks for these parameter names."""
    half = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    sent = dist.all_reduce(half, async_op=True).get_future()
    return sent.then(lambda done: bucket.buffer().copy_(done.value()[0]))
