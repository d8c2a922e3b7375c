"""The plan of launch.data publish s3://... --by instance, and what it refuses before anything is made."""

import json
import re
from collections.abc import Callable, Iterator

import pytest

from launch.data.source import Item, Source
from tests.launch.data.on_ec2.desk import NAME, Ec2Desk, opened

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Desk]:
    """One for all tests, none of which writes."""
    with opened(tmp_path_factory.mktemp("desk")) as desk:
        yield desk
        assert desk.writes() == []


def test_a_plan_compares_both_places_and_has_every_request(desk: Ec2Desk) -> None:
    assert desk.publish_s3("--dry-run=full") == 0, desk.text
    for words in ("--by here  ", "--by instance (c6id.xlarge)  ", "ec2:RunInstances", "scheduler:CreateSchedule",
                  "ec2:CreateSecurityGroup", "s3:PutObject"):  # fmt: skip
        assert words in desk.text
    assert re.search(r"if it is lost +at most 4 min and 0.0\d USD more", desk.text)


def test_the_cheaper_place_is_chosen(desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small data set costs a few cents by an instance, and nothing from here."""
    assert desk.publish_s3("--dry-run=full", by="cheaper") == 0, desk.text
    assert "ec2:RunInstances" not in desk.text
    monkeypatch.setattr("launch.data.costs.OUT_GB", 1000.0)  # USD of traffic per GB
    assert desk.publish_s3("--dry-run=full", by="cheaper") == 0, desk.text
    assert "ec2:RunInstances" in desk.text


def test_a_type_is_chosen_that_the_region_has(desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(aws: object, types: tuple[str, ...]) -> dict[str, frozenset[str]]:
        return {name: frozenset({"us-east-1a"} if name == "i4i.4xlarge" else ()) for name in types}

    monkeypatch.setattr("launch.data.on_ec2.facts.offered_zones", offered)
    assert desk.publish_s3("--dry-run=full") == 0, desk.text
    assert "--by instance (i4i.4xlarge)" in desk.text


def test_a_source_in_another_bucket_is_a_warning(desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    large = Source("s3://theirs/photos", "theirs", (Item("a.tar", "photos/a.tar", 155 * 10**9, '"e"'),))
    monkeypatch.setattr("launch.data.on_ec2.facts.find_source", lambda aws, source: large)
    assert desk.publish_s3("--dry-run=full") == 0, desk.text
    assert "s3://theirs is not the toolkit's bucket" in desk.text
    assert "3.10 USD more" in desk.text  # of traffic between regions


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--max-usd", "1"), "2.44 USD until its time limit, more than --max-usd 1"),
        (("--max-hours", "0.01"), "--max-hours is 0.01"),
        (("--instance-type", "c5.large"), "its local disks have 0 GB"),
        (("--instance-type", "c6id.3xlarge"), "did you mean"),
    ],
)
def test_impossible_options_are_refused(words: tuple[str, ...], named: str, desk: Ec2Desk, capsys: Capture) -> None:
    assert desk.publish_s3(*words) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("s3://bucket", "s3://BUCKET/FOLDER"),
        ("s3:/photos", "s3://BUCKET/FOLDER"),
        ("s3://BUCKET/photos", "s3://BUCKET/FOLDER"),
        ("s3://{bucket}/nothing", "there is nothing in s3://"),
        ("{folder}", "aws s3 cp {folder} s3://aws-ddp-toolkit-ACCOUNT-REGION/sources/photos --recursive"),
    ],
)
def test_a_source_that_an_instance_cannot_read_is_refused(
    source: str, named: str, desk: Ec2Desk, capsys: Capture
) -> None:
    values = {"bucket": desk.account.bucket, "folder": desk.folder}
    assert desk.type("publish", source.format(**values), "--name", NAME, "--by", "instance") == 2
    assert named.format(**values) in capsys.readouterr().err


def archive(desk: Ec2Desk, patch: pytest.MonkeyPatch) -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html: InvalidObjectState."""
    key = next(key for key in desk.account.s3_keys() if key.startswith("sources/") and key.endswith(".tar"))
    patch.setattr(desk.account.objects()[key], "_storage_class", "GLACIER")


def lower_quota(desk: Ec2Desk, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(desk.account.quota, "L-1216C47A", 0.0)


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        (archive, 2, "in GLACIER; restore them first"),
        (
            lower_quota,
            4,
            "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-1216C47A "
            "--desired-value 4 --region us-east-1",
        ),
    ],
)
def test_an_account_that_cannot_run_it_is_refused(
    change: Callable[[Ec2Desk, pytest.MonkeyPatch], None],
    code: int,
    named: str,
    desk: Ec2Desk,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    change(desk, monkeypatch)
    assert desk.publish_s3() == code
    assert named in capsys.readouterr().err


def test_a_new_accounts_quota_is_enough(desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html: five vCPUs at first."""
    monkeypatch.setitem(desk.account.quota, "L-1216C47A", 5.0)
    assert desk.publish_s3("--dry-run=json") == 0
    assert json.loads(desk.text)["problems"] == []


def test_subnets_without_a_way_out_are_refused(desk: Ec2Desk, capsys: Capture) -> None:
    """Last, as the route does not come back."""
    desk.account.remove_internet_route()
    assert desk.publish_s3() == 2
    assert "could not reach S3, EBS and PyPI" in capsys.readouterr().err
