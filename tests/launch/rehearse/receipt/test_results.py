"""What a rehearsed job leaves in S3 and in its log comes into its folder, and nowhere else."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.rehearse.nodes.sagemaker.files import download
from launch.rehearse.receipt.page import NAME, write
from launch.rehearse.receipt.results import save
from tests.launch.rehearse.receipt.receipts import RECEIPT


class Left:
    """An account in which somebody with the rights of a node has written these keys, and streams of the log."""

    def __init__(self, *keys: str, streams: tuple[str, ...] = ()) -> None:
        self.keys, self.streams = keys, streams

    def objects(self, _bucket: str | None) -> dict[str, Any]:
        return {key: SimpleNamespace(value=b"x") for key in self.keys}

    def logs(self) -> dict[str, list[str]]:
        return {f"j/{stream}": ["x"] for stream in self.streams}

    def get(self, _uri: str) -> bytes:
        return b"x"


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_no_key_and_no_stream_leads_out_of_the_jobs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users of the machine reach the nodes' metadata, and with it what a node may write: see SECURITY.md."""
    here = tmp_path / "one" / "two"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    out = f"jobs/j/run/{tmp_path}/absolute"
    left = Left(out, "jobs/j/run/../../../up", "jobs/j/../x", "jobs/j/run/a", "jobs/j/job.json", "../../y",
                streams=("rank-0", "../../../up"))  # fmt: skip

    folder, sizes = save(left, "bucket", "j", [])  # type: ignore[arg-type]

    assert files(tmp_path) == [f"one/two/runs/j/{name}" for name in ("a", "job/job.json", "logs/rank-0.log",
                                                                     "requests.jsonl")]  # fmt: skip
    assert sorted(sizes) == files(folder)


def test_no_file_of_a_trainings_stands_for_what_the_rehearsal_has_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("requests.jsonl", "job", "job/job.json", "logs", "logs/rank-0.log", "receipt.html/a", "mine")
    left = Left(*(f"jobs/j/run/{name}" for name in names), "jobs/j/job.json", streams=("rank-0",))

    folder, sizes = save(left, None, "j", [])  # type: ignore[arg-type]

    assert sizes == {"requests.jsonl": 0, "logs/rank-0.log": 2, "job/job.json": 1, "mine": 1}
    assert files(folder) == sorted(sizes)


def test_names_that_no_folder_takes_lose_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    left = Left("jobs/j/run/a", "jobs/j/run/a/b", f"jobs/j/run/{'x' * 300}", "jobs/j/run/z")

    folder, sizes = save(left, None, "j", [])  # type: ignore[arg-type]

    assert files(folder) == sorted(sizes) == ["a", "requests.jsonl", "z"]


def test_neither_does_one_in_a_channel_of_sagemaker(tmp_path: Path) -> None:
    keys = [f"s3://bucket/data/{name}" for name in ("a", "../../up", "b/../../../up", "folder/")]

    download(Left(), keys, "s3://bucket/data/", tmp_path / "one" / "two")  # type: ignore[arg-type]

    assert files(tmp_path) == ["one/two/a"]


def test_neither_is_the_receipt_itself(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / NAME).symlink_to(tmp_path / "precious")

    page = write(replace(RECEIPT, kept=tmp_path))

    assert (page.is_symlink(), "digits-cnn" in page.read_text()) == (False, True)
    assert (tmp_path / "precious").read_text() == "kept"
