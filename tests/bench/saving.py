"""Seconds that a training waits for a checkpoint, and its bytes: pickled, as versions before did, and as now.

python -m tests.bench.saving
"""

import io
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torchvision import models

from trainer.state import plain
from trainer.state.checkpoint import Checkpoints, load
from trainer.state.snapshot import copied

RUNS = 7


def main() -> int:
    model = models.resnet50()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    state: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    print(f"ResNet-50 with momentum, torch {torch.__version__}, medians of {RUNS}")
    for name, write in {"torch.save": pickled, "plain": plain.dumps}.items():
        print(f"{name:10}  write {median(lambda write=write: write(state)):.3f} s, {len(write(state)):,} bytes")  # type: ignore[misc]
    for name, data in {"torch.save": pickled(state), "plain": plain.dumps(state)}.items():
        print(f"{name:10}  read  {median(lambda data=data: load(data)):.3f} s")  # type: ignore[misc]
    with TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder), 2)
        waits = [waited(checkpoints, state, epoch) for epoch in range(RUNS)]
        checkpoints.close()
    print(f"the training waits {statistics.median(waits):.3f} s: for the copy; the rest is written beside it")
    return 0


def pickled(state: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def median(act: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        act()
        return time.perf_counter() - began

    return statistics.median(once() for _ in range(RUNS))


def waited(checkpoints: Checkpoints, state: dict[str, Any], epoch: int) -> float:
    began = time.perf_counter()
    checkpoints.save(copied(state), epoch, epoch, is_best=False)
    waited_s = time.perf_counter() - began
    checkpoints.wait()  # an epoch is longer than a write
    return waited_s


if __name__ == "__main__":
    sys.exit(main())
