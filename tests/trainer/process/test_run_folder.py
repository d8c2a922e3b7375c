"""A run folder belongs to one run."""

from pathlib import Path

import pytest

from tests.conftest import Run
from tests.trainer.test_failures import refused
from trainer.__main__ import read_settings, run_folder
from trainer.contract import CHECKPOINTS, OUTCOME
from trainer.outcome import Outcome
from trainer.process.run_folder import FolderLock, RunFolder, Taken


def new(path: Path) -> RunFolder:
    return RunFolder(path, is_named=False, is_new=True)


def test_a_restarted_job_finds_its_folder_and_another_of_the_same_name_has_its_own(tmp_path: Path) -> None:
    def job() -> RunFolder:
        return RunFolder(tmp_path / "digits-cnn-4711", is_named=False)

    with job() as before:
        (before.claim() / "metrics.jsonl").touch()
    with job() as again, job() as beside:
        assert [again.claim().name, beside.claim().name] == ["digits-cnn-4711", "digits-cnn-4711-2"]


def test_a_named_folder_in_use_is_refused_and_what_is_in_it_stays(tmp_path: Path) -> None:
    with RunFolder(tmp_path, is_named=True) as first, RunFolder(tmp_path, is_named=True) as second:
        first.claim()
        Outcome("done", 0).write(tmp_path)
        with pytest.raises(Taken):
            second.claim()
        assert second.for_outcome() is None
        assert first.for_outcome() == tmp_path
    assert (tmp_path / OUTCOME).exists()


def test_two_runs_do_not_share_a_checkpoint_folder(tmp_path: Path) -> None:
    one, two = (RunFolder(tmp_path / n, is_named=True, checkpoint_dir=tmp_path / CHECKPOINTS) for n in "ab")
    with one, two:
        one.claim()
        with pytest.raises(Taken, match=CHECKPOINTS):
            two.claim()
    assert list(tmp_path.iterdir()) == []  # nothing was written


def test_a_folder_nobody_named_is_not_kept_for_a_failure_alone(tmp_path: Path) -> None:
    with new(tmp_path / "runs" / "run") as folder:
        assert folder.for_outcome() is None
        folder.claim()
        assert folder.for_outcome() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"TORCHELASTIC_RUN_ID": "0f8b4d1c-1111-2222-3333-444455556666"}, "digits-cnn-0f8b4d1c"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "4711"}, "digits-cnn-4711"),
    ],
)
def test_a_job_id_names_the_folder(env: dict[str, str], name: str) -> None:
    config = read_settings(["--model", "cnn", "--dataset", "digits"])
    assert run_folder(config, env).path == Path("runs") / name


def test_a_second_training_in_one_folder_is_refused_by_one_sentence(train: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    lock = FolderLock(folder)
    lock.take()
    Outcome("done", 0, "of the first").write(folder)
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())

    refused(train(ranks=2), 6, f"{folder} is in use by process", "give another folder")

    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before
    lock.release()


def test_runs_that_start_in_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    with new(tmp_path / "run") as first, new(tmp_path / "run") as second, new(tmp_path / "run") as third:
        assert [folder.claim().name for folder in (first, second, third)] == ["run", "run-2", "run-3"]
