"""launch.data list, show, copy and delete."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launch.aws.names import BUCKET_TAG, DATA_TAG, OWNER_TAG
from launch.aws.names import tags as job_tags
from launch.data.lookup import users
from launch.data.upload import Place
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.iam.callers import MOTOS_USER_ID
from tests.launch.data.desk import NAME, Desk, opened, write_prepared
from tests.launch.faults import Died, Faults, died_after, injected, lost

ELSEWHERE = "eu-west-1"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with opened(tmp_path) as desk:
        yield desk


@pytest.fixture
def published(desk: Desk) -> Desk:
    assert desk.publish() == 0, desk.text
    return desk


@pytest.fixture
def there(desk: Desk) -> Ec2Account:
    """The account in another region, with the toolkit's bucket."""
    there = Ec2Account(ELSEWHERE, rules=desk.account.rules)
    there.make_bucket(there.bucket)
    return there


def copy(desk: Desk) -> int:
    return desk.type("copy", NAME, "--to-region", ELSEWHERE)


def die_at(desk: Desk, operation: str, act: Callable[[Desk], int]) -> None:
    with injected(Faults().on(operation, died_after())), pytest.raises(Died):
        act(desk)


def tags_of(snapshot: Any) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in snapshot.get_tags()}


def objects_in(account: Ec2Account) -> dict[str, bytes]:
    return {key.removeprefix(f"data/{NAME}/"): one.value for key, one in account.objects().items()}


def reads_it(desk: Desk, how: str = "snapshot") -> None:
    """A job whose node runs, and which reads the data set."""
    (snapshot,) = desk.snapshots()
    place = f"s3://{desk.account.bucket}/data/{NAME}"
    settings = {
        "snapshot": {"snapshot": snapshot.id, "where": {}},
        "data-s3": {"snapshot": None, "where": {"data_s3": place}},
        "data-url": {"snapshot": None, "where": {}, "train": ["--data-url", place, "--epochs", "2"]},
    }
    desk.account.put_json("jobs/one/job.json", {"backend": "ec2", **settings[how]})
    starts_node(desk, "one", desk.account.bucket)


def starts_node(desk: Desk, job: str, bucket: str) -> None:
    """A machine that runs, with the tags of a job."""
    tags = job_tags(job, bucket, datetime.now(UTC))
    node = {"ImageId": desk.account.ami, "MinCount": 1, "MaxCount": 1, "InstanceType": "g5.2xlarge",
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]}  # fmt: skip
    desk.account.aws().call("ec2", "RunInstances", node)


def test_list_shows_finished_and_unfinished_data_sets_and_those_made_by_hand(desk: Desk) -> None:
    die_at(desk, "PutSnapshotBlock", Desk.publish)

    assert desk.type("list") == 0
    rows = {line.split()[0]: line for line in desk.text.splitlines()}
    assert "(pending)" in rows[NAME]
    assert "publishing" in rows[NAME]
    assert "(by hand)" in rows["imagenet"]


def test_show_ends_with_the_commands_that_read_it(published: Desk) -> None:
    assert published.type("show", NAME) == 0

    assert f"python -m launch.ec2 --nodes 2 --dataset imagefolder --data {NAME}" in published.text
    assert f"python -m launch.sagemaker --dataset imagefolder --data {NAME}" in published.text


# ---- copy


def test_a_copy_has_the_same_objects_blocks_and_tags(published: Desk, there: Ec2Account) -> None:
    """The owner is the one who makes it: IAM allows no other."""
    (snapshot,) = published.snapshots()
    snapshot.add_tags({OWNER_TAG: "AIDAYOU"})

    for _ in range(2):  # the second time nothing is left to do
        assert copy(published) == 0, published.text
    (copied,) = published.snapshots(ELSEWHERE)
    assert objects_in(there) == published.s3()
    assert copied.encrypted
    its_own = {BUCKET_TAG: there.bucket, OWNER_TAG: MOTOS_USER_ID}
    assert tags_of(copied) == {**tags_of(snapshot), **its_own}


def test_a_copy_whose_answer_was_lost_leaves_one_snapshot(published: Desk, there: Ec2Account) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CopySnapshot.html has no client token."""
    with injected(Faults().on("CopySnapshot", lost(attempts=1))):  # botocore repeats it
        assert copy(published) == 0, published.text
    (copied,) = published.snapshots(ELSEWHERE)
    assert copied.status == "completed"


def test_a_copy_of_another_content_leaves_nothing_of_the_old_one(published: Desk, there: Ec2Account) -> None:
    """It would be billed for ever; and with its manifest, new shards would be read by the old index."""
    assert copy(published) == 0, published.text
    there.put(there.bucket, f"data/{NAME}/train/000001.tar", b"of more shards than the new content has")
    write_prepared(published.folder, seed=1)
    assert published.publish("--replace") == 0, published.text

    die_at(published, "CopyObject", copy)
    assert f"data/{NAME}/manifest.json" not in there.objects()

    assert copy(published) == 0, published.text
    assert objects_in(there) == published.s3()
    digests = [tags_of(one)["aws-ddp-toolkit:digest"] for one in published.snapshots(ELSEWHERE)]
    assert digests == [published.record["digest"]]


def test_an_unfinished_data_set_is_not_copied(desk: Desk, there: Ec2Account, capsys: Capture) -> None:
    """It would replace what is whole there."""
    die_at(desk, "PutSnapshotBlock", Desk.publish)
    assert copy(desk) == 2
    assert f"{NAME} is not completely published in us-east-1" in capsys.readouterr().err
    assert there.objects() == {}


def test_a_copy_needs_the_toolkits_bucket_there(published: Desk, capsys: Capture) -> None:
    assert copy(published) == 4
    assert "there is no bucket" in capsys.readouterr().err


# ---- delete


def test_delete_asks_and_then_leaves_nothing(published: Desk) -> None:
    asked: list[str] = []
    published.confirms = asked.append

    assert published.type("delete", NAME) == 0
    assert asked == [f"this deletes data set {NAME} in us-east-1"]
    assert (published.s3(), published.account.left()) == ({}, [])


def test_delete_leaves_a_snapshot_that_was_made_by_hand(published: Desk) -> None:
    by_hand = published.account.ec2.snapshots[published.account.snapshot]
    by_hand.add_tags({DATA_TAG: NAME})

    assert published.type("delete", NAME, "--yes") == 0
    assert [one.id for one in published.snapshots()] == [by_hand.id]


DELETE = ("delete", NAME, "--yes")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("snapshot", DELETE),
        ("data-s3", DELETE),
        ("data-url", DELETE),
        ("snapshot", ("publish", "FOLDER", "--name", NAME, "--replace")),
    ],
)
def test_data_that_a_job_reads_stay(how: str, words: tuple[str, ...], published: Desk, capsys: Capture) -> None:
    reads_it(published, how)
    write_prepared(published.folder, seed=1)
    before = published.s3()

    assert published.type(*(str(published.folder) if word == "FOLDER" else word for word in words)) == 2
    assert f"{NAME} is in use by one (EC2)" in capsys.readouterr().err
    assert published.s3() == before


def test_a_running_job_with_unreadable_settings_keeps_the_data(published: Desk, capsys: Capture) -> None:
    reads_it(published)
    published.account.put_json("jobs/one/job.json", ["no object"])

    assert published.type("delete", NAME, "--yes") == 4
    assert published.s3()
    said = capsys.readouterr().err
    assert "job one, which runs on EC2" in said
    assert "or end it: python -m launch.ec2 stop one --region us-east-1" in said


@pytest.mark.parametrize(("job", "bucket"), [("one", "no bucket!"), ("one", ""), ("../one", "a-bucket"), ("", "")])
def test_a_damaged_tag_of_a_machine_does_not_prevent_deleting(job: str, bucket: str, published: Desk) -> None:
    starts_node(published, job, bucket)

    assert published.type("delete", NAME, "--yes") == 0
    assert published.s3() == {}


class SageMaker:
    """Says that a training runs with these hyperparameters.  moto's are completed at once."""

    def __init__(self, hyperparameters: dict[str, str]) -> None:
        self._job = {"HyperParameters": hyperparameters}

    def pages(self, service: str, *_: object) -> list[dict[str, str]]:
        return [{"TrainingJobName": "two"}] if service == "sagemaker" else []

    def call(self, *_: object) -> dict[str, dict[str, str]]:
        return self._job


@pytest.mark.parametrize("quote", ["", '"'], ids=["boto3", "the SDK, which writes JSON"])
def test_trainings_on_sagemaker_that_read_it_from_s3_are_seen(quote: str) -> None:
    place = Place("bucket", f"data/{NAME}/", "123456789012")
    aws: Any = SageMaker({"data-url": f"{quote}s3://bucket/data/{NAME}{quote}"})
    other: Any = SageMaker({"data-url": f"{quote}s3://bucket/data/{NAME}-2{quote}"})

    assert (users(aws, place, ()), users(other, place, ())) == (("two (SageMaker)",), ())


@pytest.mark.parametrize("verb", ["show", "delete"])
def test_a_missing_data_set_is_named(verb: str, desk: Desk, capsys: Capture) -> None:
    assert desk.type(verb, "nothing") == 2
    assert "there is no data set nothing in us-east-1" in capsys.readouterr().err


def test_a_name_that_aws_or_a_policy_could_misread_is_refused(desk: Desk, capsys: Capture) -> None:
    assert desk.type("publish", str(desk.folder), "--name", "../jobs") == 2
    assert "lower-case letters, digits and hyphens" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("publish", "FOLDER"), ("copy", NAME, "--to-region", ELSEWHERE)])
def test_a_key_that_is_no_arn_is_refused_before_anything_is_sent(
    words: tuple[str, ...], desk: Desk, capsys: Capture
) -> None:
    """https://docs.aws.amazon.com/ebs/latest/APIReference/API_StartSnapshot.html takes an ARN, and no alias."""
    typed = [str(desk.folder) if word == "FOLDER" else word for word in words]

    assert desk.type(*typed, "--kms-key", "alias/mine") == 2
    assert "alias/mine is not the ARN of a key" in capsys.readouterr().err
    assert desk.account.requests == []
