"""The progress bar and the time left."""

import fcntl
import os
import struct
import termios
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainer.config import TrainConfig
from trainer.metrics.counters import Totals
from trainer.metrics.log import seconds_left
from trainer.metrics.progress import Bar, duration


@pytest.mark.parametrize("columns", [60, 80])
def test_the_bar_keeps_loss_accuracy_and_the_time_left_on_a_narrow_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clock = iter([0.0, 10.0])
    monkeypatch.setattr("trainer.metrics.progress.monotonic", lambda: next(clock))
    totals = Totals(torch.device("cpu"))
    totals.sums.add_(torch.tensor([246.8, 45.6, 200.0]))
    with os.fdopen(screen, "rb", buffering=0) as shown_there:
        stderr = os.fdopen(terminal, "w")
        monkeypatch.setattr("sys.stderr", stderr)
        bar = Bar(True)
        bar.start(epoch=11, first=0, last=4, later=8)

        bar.advance()
        bar.show(totals)
        bar.close()

        stderr.close()
        written = b""
        with suppress(OSError):  # which is how a terminal ends; it may show what was written piece by piece
            while piece := shown_there.read(65_536):
                written += piece
    shown = written.decode().split("\r")
    assert any("epoch 12  25%, loss 1.234, accuracy 22.8%, 2 min left |" in line for line in shown), shown
    assert max(map(len, shown)) <= columns


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (40, "40 s"), (99, "99 s"), (130, "2 min"), (3600, "60 min"), (12_000, "3 h 20 min")],
)
def test_a_time_left_is_as_coarse_as_it_is_known(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"epochs": 5}, 3 * (10.0 + 2.0)),
        ({"epochs": 2}, 0.0),
        ({"epochs": 5, "eval_every": 2}, 3 * (10.0 + 1.0)),
        ({"epochs": 5, "max_steps": 30}, 1 * (10.0 + 2.0)),
    ],
)
def test_the_time_left_counts_the_rest_of_the_run(settings: dict[str, Any], left: float) -> None:
    training: Any = SimpleNamespace(config=TrainConfig(**settings))

    assert seconds_left(training, {"epoch": 2, "updates": 20, "epoch_s": 10.0, "eval_s": 2.0}) == pytest.approx(left)
