"""The result is unpacked where it belongs, and nowhere else."""

import errno
import io
import os
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest
from botocore.exceptions import ReadTimeoutError

from launch.core.errors import AwsError
from launch.sagemaker.result import fetch_result
from tests.launch.faults import Faults, injected, refused
from tests.launch.sagemaker.known import BUCKET, NAME, training_job, typed
from tests.launch.sagemaker.world import Stage, tar_gz
from trainer.errors import MachineError

KEY = f"jobs/{NAME}/output/{NAME}/output/model.tar.gz"
DONE = training_job(status="Completed", model=f"s3://{BUCKET}/{KEY}")


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_result_is_unpacked_into_the_jobs_folder_in_place_of_an_older_one(stage: Stage, tmp_path: Path) -> None:
    for weights in ("old", "new"):
        stage.account.write(KEY, tar_gz({"model.pt": weights, "metrics.jsonl": "{}\n"}))
        assert fetch_result(stage.aws, DONE, tmp_path / "runs") == tmp_path / "runs" / NAME
    found = {path.name: path.read_text() for path in (tmp_path / "runs" / NAME).iterdir()}
    assert found == {"model.pt": "new", "metrics.jsonl": "{}\n"}


def test_a_job_without_a_result_is_an_error(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(AwsError, match=NAME):
        fetch_result(stage.aws, training_job(status="Failed", model=None), tmp_path)
    assert files_in(tmp_path) == []


def test_a_damaged_archive_is_an_error_with_its_address_and_keeps_an_earlier_result(
    stage: Stage, tmp_path: Path
) -> None:
    stage.account.write(KEY, tar_gz({"model.pt": "old"}))
    fetch_result(stage.aws, DONE, tmp_path)
    whole = tar_gz({"model.pt": "new", "other": "".join(map(str, range(10_000)))})
    middle = len(whole) // 2
    for damaged in (b"no archive", b"", whole[:middle], whole[:-100], whole[:middle] + bytes(middle)):
        stage.account.write(KEY, damaged)
        with pytest.raises(AwsError, match=rf"is damaged: .*s3://{BUCKET}/jobs/{NAME}/run"):
            fetch_result(stage.aws, DONE, tmp_path)
    assert (tmp_path / NAME / "model.pt").read_text() == "old"
    assert files_in(tmp_path) == [f"{NAME}/model.pt"]


def is_full(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk(io.BytesIO):
    write = is_full


@pytest.mark.parametrize("when", ["while it is downloaded", "while it is unpacked"])
def test_a_full_disk_is_an_error_and_leaves_no_partial_files(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    stage.account.write(KEY, tar_gz({"model.pt": "w" * 1000, "metrics.jsonl": "{}"}))
    if when == "while it is downloaded":
        monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: FullDisk())
    else:
        monkeypatch.setattr("tarfile.copyfileobj", is_full)
    with pytest.raises(MachineError, match="No space left on device") as error:
        fetch_result(stage.aws, DONE, tmp_path)
    assert error.value.code == 6
    assert str(error.value).endswith(typed("fetch"))
    assert files_in(tmp_path) == []


def test_a_download_that_breaks_off_is_an_error_and_leaves_no_partial_files(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks_off(*_: object) -> NoReturn:
        raise ReadTimeoutError(endpoint_url="s3")

    stage.account.write(KEY, tar_gz({"model.pt": "w"}))
    monkeypatch.setattr("botocore.response.StreamingBody.read", breaks_off)
    with pytest.raises(AwsError, match="no answer to s3:GetObject") as error:
        fetch_result(stage.aws, DONE, tmp_path)
    assert error.value.code == 4
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside-of-it"])
def test_nothing_is_written_outside_of_the_folder(stage: Stage, tmp_path: Path, name: str) -> None:
    stage.account.write(KEY, tar_gz({name: "x"}))
    with suppress(AwsError):
        fetch_result(stage.aws, DONE, tmp_path / "runs")
    # What begins with / lies in the folder then, as tar does it.
    assert [path for path in tmp_path.rglob("outside*") if not path.is_relative_to(tmp_path / "runs" / NAME)] == []
    assert not Path("/tmp/outside-of-it").exists()


def packed(*entries: tarfile.TarInfo) -> bytes:
    """A tar archive of empty files and links."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as tar:
        for entry in entries:
            tar.addfile(entry)
    return whole.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def test_a_link_out_of_the_folder_is_left_out_and_the_rest_unpacked(stage: Stage, tmp_path: Path) -> None:
    """Trainings link to their last checkpoint by its path in the container.

    It leads to a folder of the test's own: where the product is broken, what lies there is moved.
    """
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/file").touch()
    stage.account.write(KEY, packed(entry("link", tarfile.SYMTYPE, str(tmp_path / "theirs")), entry("link/file")))
    found = fetch_result(stage.aws, DONE, tmp_path / "runs")
    assert not (found / "link").is_symlink()
    assert (found / "link/file").is_file()
    assert (tmp_path / "theirs/file").exists()


def test_a_link_within_the_folder_is_left_out(stage: Stage, tmp_path: Path) -> None:
    """CVE-2025-4517: by long chains of such links an archive wrote anywhere, past tarfile's own filter."""
    stage.account.write(KEY, packed(entry("link", tarfile.SYMTYPE, "metrics.jsonl"), entry("metrics.jsonl")))
    found = fetch_result(stage.aws, DONE, tmp_path)
    assert files_in(found) == ["metrics.jsonl"]


@pytest.mark.parametrize(("also", "behind"), [((), "1/2/link"), (("/1/2/link",), "gone/../1/2/link")])
def test_no_hard_link_brings_back_a_link_that_was_left_out(
    stage: Stage, tmp_path: Path, also: tuple[str, ...], behind: str
) -> None:
    """CVE-2025-4330: it became that link, in another folder, and the next result was written where it led to."""
    (tmp_path / "home").mkdir()
    link, out = entry("1/2/link", tarfile.SYMTYPE, "../../home"), entry("out", tarfile.LNKTYPE, behind)
    for content in (packed(link, *map(entry, also), out), tar_gz({"out/keys": "theirs"})):
        stage.account.write(KEY, content)
        with suppress(AwsError):
            fetch_result(stage.aws, DONE, tmp_path / "runs")
    assert not list((tmp_path / "home").iterdir())
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]


def test_a_hard_link_to_a_file_of_the_result_is_kept(stage: Stage, tmp_path: Path) -> None:
    """As tar packs the second name of a file, such as of the best weights."""
    stage.account.write(KEY, packed(entry("./model.pt"), entry("./best.pt", tarfile.LNKTYPE, "./model.pt")))
    assert files_in(fetch_result(stage.aws, DONE, tmp_path)) == ["best.pt", "model.pt"]


def test_a_folder_that_cannot_be_written_is_an_error_with_the_fetch_command(stage: Stage, tmp_path: Path) -> None:
    stage.account.write(KEY, tar_gz({"model.pt": "w"}))
    (tmp_path / "runs").write_text("a file in the way")
    with pytest.raises(MachineError, match=rf"python -m launch.sagemaker fetch {NAME}"):
        fetch_result(stage.aws, DONE, tmp_path / "runs")


def test_a_result_that_is_gone_or_unreadable_is_an_error(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(AwsError):
        fetch_result(stage.aws, DONE, tmp_path)
    stage.account.write(KEY, tar_gz({"model.pt": "w"}))
    with (
        injected(Faults().on("GetObject", refused("AccessDenied", 403), nth=None)),
        pytest.raises(AwsError, match="s3:GetObject"),
    ):
        fetch_result(stage.aws, DONE, tmp_path)
    assert files_in(tmp_path) == []
