"""What a machine may lack."""

import os

import pytest

from trainer.process.machine import share_of_cores


def test_where_a_process_cannot_tell_its_cores_it_has_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [share_of_cores(ranks) for ranks in (1, 3, 16)] == [8, 2, 1]
