"""launch.data publish s3://... --by here: the source is copied to this machine first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.data.on_ec2.desk import NAME, Ec2Desk, opened


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Ec2Desk]:
    with opened(tmp_path) as desk:
        yield desk


def test_from_here_the_source_is_copied_first(desk: Ec2Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("launch.data.source.PART", 300_000)  # the largest file comes in three parts
    assert desk.publish_s3("--dry-run", by="here") == 0
    assert not any(Path().iterdir())

    assert desk.publish_s3("--to", "s3", by="here") == 0, desk.text
    for path in desk.folder.rglob("*.*"):
        copied = Path(f"{NAME}-source", path.relative_to(desk.folder))
        assert copied.read_bytes() == path.read_bytes()
    assert desk.record["state"] == "published"

    since = len(desk.account.requests)
    assert desk.publish_s3("--to", "s3", by="here") == 0, desk.text  # nothing is fetched twice
    keys = [call.params["Key"] for call in desk.account.requests[since:] if call.operation == "GetObject"]
    assert not [key for key in keys if key.startswith("sources/")]


def test_a_name_that_leads_out_of_the_folder_is_not_written(
    desk: Ec2Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    desk.account.put(desk.account.bucket, f"sources/{NAME}/../../gotcha", b"1")
    assert desk.publish_s3("--to", "s3", by="here") == 3
    assert "is the name of an object and not valid for a file" in capsys.readouterr().err
    assert not any(Path().iterdir())
