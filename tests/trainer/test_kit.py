"""trainer.kit: checkpoints, a timely stop and metrics for a user's script, and nothing outside our launchers."""

import hashlib
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.trainer.ranks_here import on_ranks
from trainer import kit
from trainer.distributed.session import Session


@pytest.fixture(autouse=True)
def nothing_noted() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
    kit._events.clear()


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDP_RUN_DIR", str(tmp_path))
    return tmp_path


def state(step: int) -> dict[str, Any]:
    return {"model": {"weight": torch.full((3,), float(step))}, "step": step, "loss": [0.5], "name": "x"}


def saved(folder: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in (folder / "checkpoints").iterdir())


def test_what_is_saved_is_loaded_and_only_the_newest_are_kept(launched: Path) -> None:
    assert kit.load() is None

    for step in range(5, 12):
        kit.save(state(step), step)

    found = kit.load()
    assert found is not None
    assert found["step"] == 11
    assert torch.equal(found["model"]["weight"], torch.full((3,), 11.0))
    assert saved(launched) == [9, 10, 11]
    kit.save(state(12), 12, keep=1)
    assert saved(launched) == [12]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_checkpoint_is_passed_over(damage: str, launched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2):
        kit.save(state(step), step)
    newest = max((launched / "checkpoints").iterdir())
    whole = newest.read_bytes()
    flipped = bytes([whole[len(whole) // 2] ^ 1])
    middle = len(whole) // 2
    newest.write_bytes({"cut": whole[:-9], "flipped": whole[:middle] + flipped + whole[middle + 1 :]}[damage])

    found = kit.load()

    assert found is not None
    assert found["step"] == 1
    assert f"warning: '{newest}' is damaged" in capsys.readouterr().err


class Hostile:
    """What runs code when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.proof),)


def test_a_checkpoint_of_a_strangers_runs_no_code(launched: Path) -> None:
    (launched / "checkpoints").mkdir()
    data = io.BytesIO()
    torch.save({"step": Hostile(launched / "proof")}, data)
    digest = hashlib.sha256(data.getvalue()).hexdigest()
    (launched / "checkpoints" / f"step-0000000009-{digest[:16]}.pt").write_bytes(data.getvalue())

    with pytest.raises(pickle.UnpicklingError):
        kit.load()
    assert not (launched / "proof").exists()


def test_a_save_that_fails_leaves_the_checkpoints_before_it(launched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.save(state(1), 1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        kit.save(state(2), 2)

    assert saved(launched) == [1]


def test_what_could_not_be_loaded_again_is_refused_when_it_is_saved(launched: Path) -> None:
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        kit.save({"path": Path("x")}, 1)

    assert saved(launched) == []


def test_a_request_to_stop_is_heard_from_the_first_question_on(launched: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    kit.save(state(1), 1)
    assert signal.getsignal(signal.SIGTERM) == before  # a script that never asks ends as any other
    assert not kit.should_stop()

    os.kill(os.getpid(), signal.SIGTERM)

    assert kit.should_stop()


def test_metrics_are_a_line_of_rank_0(
    launched: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.metric(step=1_000_000, loss=torch.tensor(0.123456789), lr=1e-5, best=True)
    monkeypatch.setenv("LOCAL_RANK", "1")
    kit.metric(step=2)

    assert capsys.readouterr().out == "[METRIC] step=1000000 loss=0.123457 lr=1e-05 best=1\n"


def test_elsewhere_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    kit.save(state(1), 1)
    kit.metric(loss=1)

    assert (kit.load(), kit.should_stop(), kit.restarts()) == (None, False, 0)
    assert (kit.run_folder(), kit.data_folder("mine")) == (Path(), Path("mine"))
    assert signal.getsignal(signal.SIGTERM) == before
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


def test_the_file_needs_nothing_else_and_imports_no_torch(tmp_path: Path) -> None:
    shutil.copy(kit.__file__, tmp_path)
    program = (
        "import kit, sys; print(kit.should_stop(), kit.metric(a=1), 'torch' in sys.modules, 'trainer' in sys.modules)"
    )
    env = {"DDP_RUN_DIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True)

    assert ended.stdout == "[METRIC] a=1\nFalse None False False\n", ended.stderr


def together(session: Session, folder: str) -> tuple[bool, bool, int, list[str]]:
    """What each of two ranks sees: rank 1 alone is stopped, and rank 0 alone has the files."""
    rank = session.ranks.rank
    os.environ["DDP_RUN_DIR"] = f"{folder}/{rank}"
    before = kit.should_stop()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    after = kit.should_stop()
    kit.save(state(7), 7)
    dist.barrier()
    dist.broadcast_object_list = None  # which unpickles: see SECURITY.md
    found = kit.load()
    assert found is not None
    return before, after, found["step"], sorted(path.name for path in Path(folder).iterdir())


def test_ranks_agree_to_stop_and_load_what_rank_0_has_saved(tmp_path: Path) -> None:
    assert on_ranks(2, together, str(tmp_path)) == [(False, True, 7, ["0"])] * 2
