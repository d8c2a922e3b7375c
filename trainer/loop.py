"""The training loop and the evaluation loop: start reading here.

Nothing here waits for the device or prints.  train_epoch yields after every update, and its caller logs, saves or
stops there.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainer.metrics.counters import Stopwatch, Totals, tally
from trainer.optimizers.precision import Stepper

Batches = Iterable[tuple[Tensor, Tensor]]
Context = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class StepContext:
    """What one training step needs."""

    model: nn.Module
    criterion: Callable[[Tensor, Tensor], Tensor]
    stepper: Stepper
    autocast: Context
    no_sync: Context  # inside, gradients are not exchanged between ranks
    guard: Callable[[Tensor], AbstractContextManager[object]] = nullcontext  # labels -> context for the batch's pass


def train_epoch(
    step_context: StepContext,
    batches: Batches,
    learning_rate: Callable[[int], float],
    totals: Totals,
    watch: Stopwatch,
    *,
    first_step: int = 0,
    accumulate: int = 1,
) -> Iterator[int]:
    """Train on `batches`, `accumulate` of them per update, and yield the number of updates done after each one.

    batches: images (B, 3, H, W) and labels (B,).  Collective under ddp and fsdp: every rank must do the same number
    of steps.
    """
    step_context.model.train()
    step = first_step
    for passed, (images, labels) in enumerate(watch.waiting(batches), start=1):
        completes = passed % accumulate == 0
        # DDP decides in the forward pass whether the backward pass will communicate.
        with nullcontext() if completes else step_context.no_sync(), step_context.guard(labels):
            with watch.phase("forward"), step_context.autocast():
                logits = step_context.model(images)
                loss = step_context.criterion(logits, labels)
            with watch.phase("backward"):
                step_context.stepper.backward(loss / accumulate if accumulate > 1 else loss)
        totals.add(loss, logits, labels, step)
        if completes:
            with watch.phase("optimizer"):
                step_context.stepper.update(learning_rate(step))
            step += 1
            yield step


def evaluate(model: nn.Module, batches: Batches, autocast: Context, device: torch.device) -> Tensor:
    """Sums over this rank's share: loss, top-1 correct, top-5 correct and images, (4,) float64 on the device."""
    model.eval()
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    for images, labels in batches:
        # Not around the whole loop: decoding threads write into batches that must stay ordinary tensors.
        with torch.inference_mode(), autocast():
            sums += tally(model(images), labels)
    return sums
