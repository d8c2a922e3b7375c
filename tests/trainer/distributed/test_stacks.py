"""What a stalled rank shows of itself."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.ranks_here import on_ranks
from trainer.distributed import stacks as module
from trainer.distributed.session import Session
from trainer.distributed.stacks import collectives, py_spy, recorded, stack_of, stacks


def test_the_innermost_call_comes_first_with_its_file_line_and_code() -> None:
    lines = list(stacks(threading.get_ident()))
    here = next(line for line in lines if "test_stacks.py" in line)
    assert "in test_the_innermost_call_comes_first_with_its_file_line_and_code: lines = " in here
    assert all(line.startswith("    ") and line.endswith("\n") for line in lines)


def test_a_thread_that_has_ended_is_no_error() -> None:
    assert stack_of(None) == ["its main thread has ended"]


def test_the_newest_collectives_come_first_in_the_recorders_own_words() -> None:
    """As torch 2.15's _dump_fr_trace_json names them."""
    entries = [
        {"collective_seq_id": number, "profiling_name": "nccl:all_reduce", "state": state, "input_sizes": [[1000]]}
        for number, state in enumerate(["completed"] * 4 + ["scheduled"])
    ]
    assert collectives({"entries": entries})[0] == "collective 4: nccl:all_reduce, scheduled, sizes [[1000]]"
    assert len(collectives({"entries": entries})) == 3
    assert collectives({}) == []


def recorded_here(session: Session) -> list[str]:
    for _ in range(2):
        session.sum(torch.ones(7))
    return collectives(recorded())


@pytest.mark.skipif(torch.__version__ < "2.15", reason="needs torch 2.15: before, gloo's collectives are not recorded")
def test_torchs_flight_recorder_has_real_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    for lines in on_ranks(2, recorded_here):
        assert "all_reduce" in lines[0]
        assert "[[7]]" in lines[0]


def test_where_torch_has_no_recorder_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._C import _distributed_c10d as c10d

    def fail(**_: Any) -> bytes:
        raise RuntimeError("no such backend")

    monkeypatch.setattr(c10d, "_dump_fr_trace_json", fail)
    assert recorded() == {}


def test_py_spy_is_asked_where_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert py_spy() == []
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\necho "asked: $*"\n')
    program.chmod(0o755)
    assert py_spy()[0] == "py-spy:"
    assert py_spy()[1].startswith("asked: dump --native --nonblocking --pid ")
    program.write_text("#!/bin/sh\nexit 1\n")
    assert py_spy() == []
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(module, "PY_SPY_WITHIN_S", 0.1)
    assert py_spy() == []
