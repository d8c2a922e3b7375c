"""Checkpoint files survive crashes, damage and full disks."""

import hashlib
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import trainer_env
from trainer.errors import CheckpointError, MachineError
from trainer.state.checkpoint import BEST, Checkpoints, load, read, write


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


def test_the_newest_of_several_is_found(tmp_path: Path) -> None:
    assert newest(saved(tmp_path, 12)) == 12


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path, 3).newest(print) is None


def test_the_last_k_and_the_best_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, 5, keep=2)
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == [
        "best.pt", "epoch-0004-step-000040.pt", "epoch-0005-step-000050.pt",
    ]  # fmt: skip
    assert float(load(read(tmp_path / BEST))["weight"][0]) == 1


def test_the_digests_are_those_of_sha256sum(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    checked = subprocess.run(["sha256sum", "-c", *(p.name for p in tmp_path.glob("*.sha256"))], cwd=tmp_path)
    assert checked.returncode == 0


@pytest.mark.parametrize("damage", ["truncated", "bit flipped", "empty"])
def test_a_damaged_newest_is_passed_over_with_a_warning(damage: str, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 3)
    path = tmp_path / "epoch-0003-step-000030.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"truncated": bytes(data[:-100]), "bit flipped": bytes(data), "empty": b""}[damage])
    warnings: list[str] = []
    assert newest(checkpoints, warnings) == 2
    assert warnings == [f"checkpoint {path} is damaged: its content does not match its digest. Trying the one before."]


def test_without_one_undamaged_it_is_an_error(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 2)
    for path in tmp_path.glob("epoch*.pt"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"all 2 checkpoints .* are damaged; .*--no-resume"):
        checkpoints.newest(lambda warning: None)


def test_a_damaged_one_does_not_outlive_the_good_ones_that_follow(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 3, keep=1)
    (tmp_path / "epoch-0003-step-000030.pt").write_bytes(b"")
    with pytest.raises(CheckpointError):
        checkpoints.newest(lambda warning: None)
    checkpoints = saved(tmp_path, 2, keep=3)
    (tmp_path / "epoch-0002-step-000020.pt").write_bytes(b"")
    assert newest(checkpoints) == 1
    again = Checkpoints(tmp_path, keep=1)
    again.save(state(1.5), 1, 15, is_best=False)
    again.wait()
    assert newest(again) == 1.5
    assert (tmp_path / "epoch-0002-step-000020.pt.damaged").exists()


def test_a_fresh_start_in_a_used_folder_keeps_its_own_checkpoints(tmp_path: Path) -> None:
    saved(tmp_path, 5)
    afresh = Checkpoints(tmp_path, keep=2)
    afresh.start_afresh()
    afresh.save(state(0.5), 1, 3, is_best=False)
    afresh.wait()
    assert newest(afresh) == 0.5
    assert len(list(tmp_path.glob("*.earlier"))) == 5


def test_a_file_without_its_digest_was_never_finished(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 3)
    (tmp_path / "epoch-0003-step-000030.pt.sha256").unlink()
    assert newest(checkpoints) == 2


def test_saving_copies_nothing_late(tmp_path: Path) -> None:
    """What is handed over is what is written, also when the next save begins at once."""
    checkpoints = Checkpoints(tmp_path, 10)
    for epoch in range(20):
        checkpoints.save(state(epoch), epoch, epoch, is_best=False)
    checkpoints.close()
    assert [float(load(read(path))["weight"][0]) for path in sorted(tmp_path.glob("*.pt"))] == list(range(10, 20))


def test_loading_runs_no_code_from_the_file(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"weight": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        load((tmp_path / "evil.pt").read_bytes())
    assert not (tmp_path / "ran").exists()


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


WRITE_FOR_EVER = """
import sys; from pathlib import Path; from trainer.state.checkpoint import Checkpoints; import torch
checkpoints, epoch = Checkpoints(Path(sys.argv[1]), 2), 0
while True:
    epoch += 1
    checkpoints.save({"weight": torch.full((100_000,), float(epoch))}, epoch, epoch, is_best=epoch % 2 == 0)
    if epoch == 3: print("going", flush=True)
"""


def test_kill_9_at_any_moment_leaves_a_checkpoint_to_resume_from(tmp_path: Path) -> None:
    for round_ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITE_FOR_EVER, tmp_path], stdout=subprocess.PIPE, env=trainer_env()
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        # Not a wait for anything: the moment of the kill is what varies.
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(timeout=0.003 * round_)
        writer.kill()
        writer.communicate()
        assert newest(Checkpoints(tmp_path, 2)) >= 1
        best = tmp_path / BEST
        digest = best.with_name(BEST + ".sha256")
        if digest.exists():
            assert digest.read_text().split()[0] == hashlib.sha256(best.read_bytes()).hexdigest()


def test_what_a_killed_process_left_is_tidied_up(tmp_path: Path) -> None:
    (tmp_path / ".epoch-0001-step-000001.pt.99.tmp").write_bytes(b"half")
    saved(tmp_path, 1)
    assert not list(tmp_path.glob(".*.tmp"))
