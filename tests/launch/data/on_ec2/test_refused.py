"""launch.data publish s3://... --by instance: what the plan says, and what it refuses before anything is made."""

from collections.abc import Iterator

import pytest

from launch.data.source import Item, Source
from tests.launch.data.on_ec2.desk import NAME, Ec2Desk, opened


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Desk]:
    """One for all: nothing here writes, which is asserted in the end."""
    with opened(tmp_path_factory.mktemp("desk")) as desk:
        yield desk
        assert desk.writes() == []


def test_a_dry_run_writes_nothing_and_has_both_ways_with_time_and_price(desk: Ec2Desk) -> None:
    assert desk.publish_s3("--dry-run") == 0, desk.text

    assert desk.writes() == []
    for words in ("--by here  ", "--by instance (c6id.2xlarge)  ", "ec2:RunInstances", "scheduler:CreateSchedule",
                  "ec2:CreateSecurityGroup", "s3:PutObject"):  # fmt: skip
        assert words in desk.text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--max-usd", "1"), "it could cost 4.86 USD until its time limit, more than --max-usd 1"),
        (("--max-hours", "0.01"), "it should take 0.1 h, and --max-hours is 0.01"),
        (("--instance-type", "c5.large"), "--instance-type c5.large: its local disks have 0 GB"),
        (("--instance-type", "c6id.3xlarge"), "did you mean"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_made(
    words: tuple[str, ...], sentence: str, desk: Ec2Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert desk.publish_s3(*words) == 2
    assert sentence in capsys.readouterr().err
    assert desk.writes() == []


def test_a_folder_of_this_machine_is_refused_with_the_command_that_helps(
    desk: Ec2Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert desk.publish("--by", "instance") == 2
    assert f"aws s3 cp {desk.folder} s3://aws-ddp-toolkit-ACCOUNT-REGION/sources/photos --recursive" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("source", ["s3://bucket", "s3:/photos", "s3://BUCKET/photos"])
def test_what_is_no_place_in_s3_is_refused(source: str, desk: Ec2Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.type("publish", source, "--name", NAME) == 2
    assert "is not a folder in S3; give one as s3://BUCKET/FOLDER" in capsys.readouterr().err


def test_an_empty_place_is_said(desk: Ec2Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.type("publish", f"s3://{desk.account.bucket}/nothing", "--name", NAME, "--by", "instance") == 2
    assert f"there is nothing in s3://{desk.account.bucket}/nothing" in capsys.readouterr().err


def test_the_cheaper_way_is_taken(desk: Ec2Desk) -> None:
    """A small data set costs a few cents by an instance, and nothing from here."""
    assert desk.publish_s3("--dry-run", by="cheaper") == 0, desk.text
    assert "--by cheaper: publishing it from here costs no more" in desk.text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("launch.data.costs.OUT_GB", 1000.0)  # of traffic, per GB
        assert desk.publish_s3("--dry-run", by="cheaper") == 0, desk.text
    assert "ec2:RunInstances" in desk.text


def test_a_quota_without_room_is_refused_with_the_remedy(
    desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html: five vCPUs in new accounts."""
    monkeypatch.setitem(desk.account.quota, "L-1216C47A", 5.0)
    assert desk.publish_s3() == 4
    assert (
        "one c6id.2xlarge needs 8 vCPUs, 0 are in use, and the quota 'Running On-Demand Standard instances' is 5; "
        "request more under Service Quotas, or publish it from a machine of yours (--by here)."
    ) in capsys.readouterr().err


def test_a_type_is_taken_that_the_region_has(desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(aws: object, types: tuple[str, ...]) -> dict[str, frozenset[str]]:
        return {name: frozenset({"us-east-1a"} if name == "i4i.4xlarge" else ()) for name in types}

    monkeypatch.setattr("launch.data.on_ec2.facts.offered_zones", offered)
    assert desk.publish_s3("--dry-run") == 0, desk.text
    assert "--by instance (i4i.4xlarge)" in desk.text


def test_what_is_archived_is_refused_before_an_instance_waits_for_it(
    desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html: InvalidObjectState."""
    key = next(key for key in desk.account.s3_keys() if key.startswith("sources/") and key.endswith(".tar"))
    monkeypatch.setattr(desk.account.objects()[key], "_storage_class", "GLACIER")
    assert desk.publish_s3() == 2
    assert f"are archived, as {key} in GLACIER; restore them first" in capsys.readouterr().err


def test_the_plan_says_what_a_lost_instance_costs(desk: Ec2Desk) -> None:
    assert desk.publish_s3("--dry-run") == 0, desk.text
    (line,) = [line for line in desk.text.splitlines() if "if it is lost" in line]
    assert "at most 4 min and 0.03 USD more each time: the images are prepared again" in line


def test_a_source_of_another_bucket_says_what_must_be_allowed_and_what_traffic_costs(
    desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Source("s3://theirs/photos", "theirs", (Item("a.tar", "photos/a.tar", 155 * 10**9, '"e"'),))
    monkeypatch.setattr("launch.data.on_ec2.facts.find_source", lambda aws, source: large)
    assert desk.publish_s3("--dry-run") == 0, desk.text
    assert "s3://theirs is not the toolkit's bucket" in desk.text
    assert "from another one, traffic costs some 3.10 USD more" in desk.text
