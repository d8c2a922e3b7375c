"""Measure the share of communication in a step, by running the same steps with and without it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

from trainer.distributed.session import Session
from trainer.loop import StepContext

ALL_REDUCES = 5


@dataclass(frozen=True)
class Communication:
    """The measured cost of communication."""

    share: float  # 0 to 1, of a forward and backward pass
    all_reduce_gb_per_s: float  # bus bandwidth


def measure(step_context: StepContext, batch: tuple[Tensor, Tensor], session: Session, steps: int) -> Communication:
    """Run `batch` alternately with and without communication, `steps` times each.  Collective.

    Weights, optimizer and batch-norm statistics are left unchanged; gradients are cleared.
    """
    buffers = [buffer.clone() for buffer in step_context.model.buffers()]
    together, alone = [], []
    with torch.random.fork_rng(devices=[session.device] if session.device.type == "cuda" else []):
        for _ in range(steps + 1):
            alone.append(seconds_of(lambda: _pass(step_context, batch, step_context.no_sync), session))
            # Last, because under FSDP a pass without communication leaves gradients that zero_grad does not clear.
            together.append(seconds_of(lambda: _pass(step_context, batch, nullcontext), session))
    step_context.model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, before in zip(step_context.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
    # The first pair is a warm-up; ranks wait for each other, so the slowest rank's figures count.
    with_it, without = session.highest([median(together[1:]), median(alone[1:])])
    return Communication(max(0.0, 1 - without / with_it), all_reduce_bandwidth(step_context.model, session))


def all_reduce_bandwidth(model: nn.Module, session: Session) -> float:
    """Bus bandwidth in GB/s of an all-reduce of this model's gradients.  Collective."""
    n = session.ranks.world_size
    gradients = torch.zeros(sum(weight.numel() for weight in model.parameters()), device=session.device)
    seconds = median(seconds_of(lambda: session.sum(gradients), session) for _ in range(ALL_REDUCES + 1))
    return bus_bandwidth(n, gradients.numel() * gradients.element_size(), seconds)


def bus_bandwidth(ranks: int, size: int, seconds: float) -> float:
    """Bus bandwidth in GB/s, 2(n-1)/n * bytes / seconds, which is comparable across numbers of ranks.

    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    return 2 * (ranks - 1) / ranks * size / seconds / 1e9


def _pass(
    step_context: StepContext, batch: tuple[Tensor, Tensor], context: Callable[[], AbstractContextManager[None]]
) -> None:
    images, labels = batch
    with context():
        with step_context.autocast():
            loss = step_context.criterion(step_context.model(images), labels)
        step_context.stepper.backward(loss)


def seconds_of(action: Callable[[], object], session: Session) -> float:
    """How long `action` takes on this rank after a barrier.  Collective."""
    session.barrier()
    began = perf_counter()
    action()
    if session.device.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter() - began
