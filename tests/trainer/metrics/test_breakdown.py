"""The milliseconds of an update stand under the phase in which they were spent, however many passes it accumulates."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.trainer.ranks_here import alone, on_ranks
from trainer.distributed import probe
from trainer.distributed.session import Session
from trainer.epoch import EpochResult
from trainer.loop import StepContext, train_epoch
from trainer.metrics import counters
from trainer.metrics.counters import Stopwatch, Totals
from trainer.metrics.record import breakdown
from trainer.precision import Stepper, gradient_scaler

CPU = torch.device("cpu")
BATCH = (torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
# Milliseconds of one pass, but communication and the optimizer, which happen once an update.
SPENT = {"data_wait": 7, "forward": 3, "backward": 5, "communication": 50, "optimizer": 11}


class Clock:
    """A clock that stands still but for what is spent on purpose."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.communicates = True

    def __call__(self) -> float:
        return self.now_s

    def spend(self, phase: str) -> None:
        self.now_s += SPENT[phase] / 1e3

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.communicates = False
        yield
        self.communicates = True


class Model(nn.Module):
    """Spends its time on `clock`; after the backward pass it communicates, unless inside no_sync."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self._clock = clock

    def forward(self, images: Tensor) -> Tensor:
        self._clock.spend("forward")
        logits: Tensor = self.layer(images)
        logits.register_hook(self._went_back)
        return logits

    def _went_back(self, gradient: Tensor) -> None:
        self._clock.spend("backward")
        if self._clock.communicates:
            self._clock.spend("communication")


def step_context(model: nn.Module, no_sync: Any) -> StepContext:
    optimizer = torch.optim.SGD(model.parameters())
    stepper = Stepper(optimizer, model.parameters(), gradient_scaler("fp32", CPU))
    return StepContext(model, nn.CrossEntropyLoss(), stepper, autocast=nullcontext, no_sync=no_sync)


def measured(trained: StepContext, batches: Iterator[tuple[Tensor, Tensor]], accumulate: int, session: Session) -> Any:
    """The breakdown of training on `batches` and then probing."""
    watch = Stopwatch(CPU, accumulate)
    updates = len([*train_epoch(trained, batches, lambda _: 0.1, Totals(CPU), watch, accumulate=accumulate)])
    communication = probe.measure(trained, BATCH, session, steps=3)
    result = EpochResult(
        loss=0.0, top1=0.0, learning_rate=0.1, global_batch=2, accumulate=accumulate, updates=updates,
        images=2, seconds=1.0, phases_ms=watch.report(),
    )  # fmt: skip
    return breakdown(result, communication)


@pytest.mark.parametrize("accumulate", [1, 2, 4, 16])
def test_every_phase_gets_the_time_that_was_spent_in_it(accumulate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(counters, "perf_counter", clock)
    monkeypatch.setattr(probe, "perf_counter", clock)
    monkeypatch.setattr(probe, "all_reduce_bandwidth", lambda *_: 1.0)
    trained = step_context(Model(clock), clock.no_sync)
    trained.stepper.optimizer.register_step_pre_hook(lambda *_: clock.spend("optimizer"))

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(3 * accumulate):
            clock.spend("data_wait")
            yield BATCH

    found = measured(trained, batches(), accumulate, alone())

    each_pass = {name: SPENT[name] * accumulate for name in ("data_wait", "forward", "backward")}
    expected = SPENT | each_pass
    assert found == pytest.approx({f"{name}_ms": milliseconds for name, milliseconds in expected.items()})


def slow_all_reduce(state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    time.sleep(0.05)
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def under_ddp(session: Session, accumulate: int) -> float:
    model = DistributedDataParallel(nn.Linear(3, 2))
    model.register_comm_hook(None, slow_all_reduce)

    def no_sync() -> AbstractContextManager[None]:
        return model.no_sync()  # type: ignore[no-any-return]

    passes = iter([BATCH] * 3 * accumulate)
    milliseconds: float = measured(step_context(model, no_sync), passes, accumulate, session)["communication_ms"]
    return milliseconds


def test_an_all_reduce_of_50_ms_is_found_under_accumulation() -> None:
    for milliseconds in on_ranks(2, under_ddp, 4):
        assert 35 < milliseconds < 100
