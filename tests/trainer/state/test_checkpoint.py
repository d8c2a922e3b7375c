"""Checkpoint files survive crashes, damage and full disks."""

import hashlib
import itertools
import pickle
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from trainer.errors import CheckpointError, MachineError
from trainer.state.checkpoint import BEST, Checkpoints, load, read, save_weights, write


def state(value: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((1000,), value)}


def saved(folder: Path, count: int, keep: int = 10) -> Checkpoints:
    """A folder with checkpoints of epochs 1 to `count`, each holding its epoch's number."""
    checkpoints = Checkpoints(folder, keep)
    for epoch in range(1, count + 1):
        checkpoints.save(state(epoch), epoch, 10 * epoch, is_best=epoch == 1)
    checkpoints.wait()
    return checkpoints


def newest(checkpoints: Checkpoints, warnings: list[str] | None = None) -> float:
    data = checkpoints.newest((warnings if warnings is not None else []).append)
    assert data is not None
    return float(load(data)["weight"][0])


def test_the_newest_of_several_is_found_and_has_the_digest_of_sha256sum(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path, 3).newest(print) is None
    (tmp_path / ".epoch-0001-step-000001.pt.99.tmp").write_bytes(b"half")  # of a killed process
    assert newest(saved(tmp_path, 12)) == 12
    checked = subprocess.run(["sha256sum", "-c", *(p.name for p in tmp_path.glob("*.sha256"))], cwd=tmp_path)
    assert checked.returncode == 0
    assert not list(tmp_path.glob(".*.tmp"))


def test_the_last_k_and_the_best_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, 5, keep=2)
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == [
        "best.pt", "epoch-0004-step-000040.pt", "epoch-0005-step-000050.pt",
    ]  # fmt: skip
    assert float(load(read(tmp_path / BEST))["weight"][0]) == 1


@pytest.mark.parametrize("damage", ["truncated", "bit flipped", "empty"])
def test_a_damaged_newest_is_passed_over_with_a_warning(damage: str, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 3)
    path = tmp_path / "epoch-0003-step-000030.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"truncated": bytes(data[:-100]), "bit flipped": bytes(data), "empty": b""}[damage])
    warnings: list[str] = []
    assert newest(checkpoints, warnings) == 2
    assert [warning.startswith(f"checkpoint {path} is damaged") for warning in warnings] == [True]


def test_a_file_without_its_digest_was_never_finished(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 3)
    (tmp_path / "epoch-0003-step-000030.pt.sha256").unlink()
    assert newest(checkpoints) == 2


def test_without_one_undamaged_it_is_an_error(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 2)
    for path in tmp_path.glob("epoch*.pt"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="--no-resume"):
        checkpoints.newest(lambda warning: None)


def test_a_fresh_start_in_a_used_folder_keeps_its_own_checkpoints(tmp_path: Path) -> None:
    saved(tmp_path, 5)
    afresh = Checkpoints(tmp_path, keep=2)
    afresh.start_afresh()
    afresh.save(state(0.5), 1, 3, is_best=False)
    afresh.wait()
    assert newest(afresh) == 0.5
    assert len(list(tmp_path.glob("*.earlier"))) == 6  # the best, too
    assert not (tmp_path / BEST).exists()


def best(folder: Path) -> float:
    return float(load(read(folder / BEST))["weight"][0])


def test_the_best_is_linked_at_the_start_where_a_kill_came_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = saved(tmp_path, 1)
    with monkeypatch.context() as killed:
        killed.setattr("trainer.state.checkpoint._duplicate", lambda path, copy: None)
        path = checkpoints.save(state(2), 2, 20, is_best=True)
        checkpoints.wait()
    assert best(tmp_path) == 1
    assert Checkpoints(tmp_path, 10).repair_best(path.name)
    assert best(tmp_path) == 2


def test_a_best_that_is_nowhere_whole_is_not_claimed(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 5, keep=2)
    (tmp_path / BEST).write_bytes(b"")
    assert not checkpoints.repair_best("epoch-0001-step-000010.pt")


@pytest.mark.parametrize("content", [b"PK\x03\x04garbage", b"", pickle.dumps({"weight": Path}), "a list"])
def test_a_newest_with_foreign_content_is_passed_over_though_its_digest_fits(content: object, tmp_path: Path) -> None:
    checkpoints, path = saved(tmp_path, 2), tmp_path / "epoch-0003-step-000030.pt"
    if isinstance(content, bytes):
        write(path, content)
    else:
        save_weights(path, [1, 2])  # type: ignore[arg-type]
    warnings: list[str] = []
    assert newest(checkpoints, warnings) == 2
    assert [warning.startswith(f"checkpoint {path} contains ") for warning in warnings] == [True]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for a full disk: the kernel refuses the write half way."""
    path = tmp_path / "epoch-0001-step-000001.pt"
    write(path, b"old")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(MachineError, match=r"cannot write checkpoint .* earlier checkpoints are untouched"):
            write(path, b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert read(path) == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, path.name + ".sha256"]


def write_for_ever(folder: Path, going: Any) -> None:
    """Puts something into the queue `going` after the third."""
    checkpoints = Checkpoints(folder, 2)
    for epoch in itertools.count(1):
        checkpoints.save({"weight": torch.full((100_000,), float(epoch))}, epoch, epoch, is_best=epoch % 2 == 0)
        if epoch == 3:
            going.put(True)


def test_kill_9_at_any_moment_leaves_a_checkpoint_to_resume_from(tmp_path: Path) -> None:
    for round_ in range(5):
        going = warm.queue()
        writer = warm.start(write_for_ever, tmp_path, going)
        going.get(timeout=60)
        writer.join(0.003 * round_)  # not a wait for anything: the moment of the kill is what varies
        writer.kill()
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
        assert newest(Checkpoints(tmp_path, 2)) >= 1
        best = tmp_path / BEST
        digest = best.with_name(BEST + ".sha256")
        if digest.exists():
            assert digest.read_text().split()[0] == hashlib.sha256(best.read_bytes()).hexdigest()


# ---- C5: weights_only is no protection below torch 2.10


def test_a_checkpoint_is_read_without_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 1)
    save_weights(tmp_path / "model.pt", {"weight": torch.ones(2)})
    monkeypatch.setattr(torch, "load", None)
    assert best(tmp_path) == 1
    assert load(read(tmp_path / "model.safetensors"))["weight"].tolist() == [1, 1]


def test_where_there_are_no_hard_links_the_best_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = saved(tmp_path, 1)

    def fail(source: Path, target: Path) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", fail)
    checkpoints.save(state(2), 2, 20, is_best=True)
    checkpoints.wait()

    assert best(tmp_path) == 2
