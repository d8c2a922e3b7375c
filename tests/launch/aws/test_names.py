"""Names that jobs of all versions of the toolkit must share: changing one loses the jobs that run."""

import re
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest

from launch.aws.names import Folder, S3Uri, bucket_of, client_token, is_path, parse_s3, read_time, tag_values, tags
from launch.core.job import check_job_name, default_job_name
from launch.data.on_ec2.facts import Facts, new_id
from trainer.errors import SettingsError

START, END = datetime(2026, 11, 21, 13, 45, tzinfo=UTC), datetime(2026, 11, 22, 1, 45, tzinfo=UTC)


def test_a_job_is_found_by_what_its_resources_carry() -> None:
    assert tag_values({"Tags": tags("demo", "b", START, END)}) == {
        "Name": "aws-ddp-toolkit-demo",
        "aws-ddp-toolkit:job": "demo",
        "aws-ddp-toolkit:started": "2026-11-21T13:45:00Z",
        "aws-ddp-toolkit:deadline": "2026-11-22T01:45:00Z",
        "aws-ddp-toolkit:bucket": "b",
    }
    assert read_time("2026-11-21T13:45:00Z") == START


def test_a_jobs_folder_has_a_place_for_everything() -> None:
    folder = Folder("b", "demo")
    assert (folder.uri, folder.spec, folder.cluster, folder.exits, folder.run) == (
        "s3://b/jobs/demo", "jobs/demo/job.json", "jobs/demo/cluster.json", "jobs/demo/exits/", "jobs/demo/run/",
    )  # fmt: skip
    assert bucket_of("123456789012", "us-east-1") == "aws-ddp-toolkit-123456789012-us-east-1"


@pytest.mark.parametrize(
    ("dataset", "model", "name"),
    [
        ("imagenet", "resnet18", "imagenet-resnet18-20261121-134500-k3v7q"),
        ("my_data", "a" * 40, f"my-data-{'a' * 18}-20261121-134500-k3v7q"),
    ],
)
def test_a_job_without_a_name_gets_one_that_aws_takes(dataset: str, model: str, name: str) -> None:
    assert check_job_name(default_job_name(f"{dataset}-{model}", START, "k3v7q")) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "my_job", "a" * 49, "a\n"])
def test_a_name_that_aws_refuses_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="at most 48 letters, digits and hyphens"):
        check_job_name(name)


def test_the_same_request_has_the_same_token() -> None:
    assert client_token("demo", 1) == client_token("demo", "1") != client_token("demo", 2)
    assert len(client_token("demo")) == 64


@pytest.mark.parametrize("backend", ["local", "slurm"])
def test_two_jobs_of_one_second_have_names_of_their_own(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # no AWS and no Slurm here, so that the plans lack what would be looked up
    letters = set()
    for lr in ("0.1", "0.2"):
        words = ["--dataset", "digits", "--model", "cnn", "--lr", lr, "--dry-run"]
        import_module(f"launch.{backend}.__main__").main(words)
        (suffix,) = set(re.findall(r"digits-cnn-\d{8}-\d{6}-([a-z2-7]{5})\b", capsys.readouterr().out))
        letters.add(suffix)

    assert len(letters) == 2


def test_two_publications_of_one_second_have_names_of_their_own() -> None:
    one, other = (new_id("photos-of-" + 40 * "a", START, Facts("us-east-1").letters) for _ in range(2))

    assert one != other
    assert check_job_name(one) == one


# ---- places in S3


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3://my-bucket/a/b.txt", S3Uri("my-bucket", "a/b.txt")),
        ("s3://my-bucket/folder/", S3Uri("my-bucket", "folder/")),
        ("s3://my.bucket", S3Uri("my.bucket")),
        *[
            (uri, None)
            for uri in ("", "bucket/key", "s3:/bucket/key", "s3://", "s3:///key", "s3://Bucket/key", "s3://a")
        ],
    ],
)
def test_a_place_is_its_bucket_and_its_key(uri: str, place: S3Uri | None) -> None:
    assert parse_s3(uri) == place
    assert place is None or parse_s3(str(place)) == place


def test_a_key_that_leads_elsewhere_is_no_path_below_a_folder() -> None:
    outside = ("", "/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/", "a/\0")
    inside = ("a", "a/b.txt", "..a/b..", "a b/\u00e4", ".hidden")
    assert [name for name in (*outside, *inside) if is_path(name)] == [*inside]
