"""What a machine may lack."""

import os

import pytest
import torch

from trainer.config import TrainConfig
from trainer.distributed.ranks import Ranks
from trainer.errors import SettingsError
from trainer.process.machine import set_up, share_of_cores


def test_where_a_process_cannot_tell_its_cores_it_has_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [share_of_cores(ranks) for ranks in (1, 3, 16)] == [8, 2, 1]


def test_so_many_threads_that_none_gets_on_are_refused() -> None:
    config = TrainConfig(threads=1024)
    with pytest.raises(SettingsError, match=r"--threads 1024: at most \d+ make sense on \d+ cores; drop it"):
        set_up(config, torch.device("cpu"), Ranks())
