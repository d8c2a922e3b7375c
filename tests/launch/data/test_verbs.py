"""launch.data list, show, copy and delete."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launch.aws.names import DATA_TAG, OWNER_TAG
from launch.aws.names import tags as job_tags
from launch.data.lookup import users
from launch.data.upload import Place
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.iam.callers import MOTOS_USER_ID
from tests.launch.data.desk import NAME, Desk, opened, write_prepared
from tests.launch.faults import Died, Faults, died_after, injected, lost

ELSEWHERE = "eu-west-1"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with opened(tmp_path) as desk:
        yield desk


@pytest.fixture
def published(desk: Desk) -> Desk:
    assert desk.publish() == 0, desk.text
    return desk


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


def test_list_shows_what_is_published_what_is_not_finished_and_what_was_made_by_hand(desk: Desk) -> None:
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", died_after())
        with pytest.raises(Died):
            desk.publish()

    assert desk.type("list") == 0
    rows = {line.split()[0]: line for line in desk.text.splitlines()}
    assert "(pending)" in rows[NAME]
    assert "publishing" in rows[NAME]
    assert "(by hand)" in rows["imagenet"]


def test_show_ends_with_the_commands_that_read_it(published: Desk) -> None:
    assert published.type("show", NAME) == 0

    assert f"python -m launch.ec2 --nodes 2 --dataset imagefolder --data {NAME}" in published.text
    assert f"--data s3://{published.account.bucket}/data/{NAME}" in published.text


def test_a_copy_has_the_same_objects_blocks_and_tags(published: Desk) -> None:
    there = Ec2Account(ELSEWHERE, rules=published.account.rules)
    there.make_bucket(there.bucket)
    (snapshot,) = published.snapshots()

    for _ in range(2):  # the second time nothing is left to do
        assert published.type("copy", NAME, "--to-region", ELSEWHERE) == 0, published.text
    (copied,) = published.snapshots(ELSEWHERE)
    mine = {key.removeprefix(f"data/{NAME}/"): one.value for key, one in there.objects().items()}
    assert mine == published.s3()
    assert copied.encrypted
    here, elsewhere = ({tag["key"]: tag["value"] for tag in one.get_tags()} for one in (snapshot, copied))
    assert {**elsewhere, "aws-ddp-toolkit:bucket": ""} == {**here, "aws-ddp-toolkit:bucket": ""}
    assert elsewhere["aws-ddp-toolkit:bucket"] == there.bucket


def test_a_copy_is_whose_who_makes_it(published: Desk) -> None:
    """IAM allows no other, as for what is published: the owner says who pays, and whom to ask."""
    there = Ec2Account(ELSEWHERE, rules=published.account.rules)
    there.make_bucket(there.bucket)
    (snapshot,) = published.snapshots()
    snapshot.add_tags({OWNER_TAG: "AIDAYOU"})

    assert published.type("copy", NAME, "--to-region", ELSEWHERE) == 0, published.text
    (copied,) = published.snapshots(ELSEWHERE)
    owners = [tag["value"] for tag in copied.get_tags() if tag["key"] == OWNER_TAG]
    assert owners == [MOTOS_USER_ID]


def test_a_copy_whose_answer_was_lost_leaves_one_snapshot(published: Desk) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CopySnapshot.html has no client token."""
    there = Ec2Account(ELSEWHERE, rules=published.account.rules)
    there.make_bucket(there.bucket)

    with injected(Faults()) as faults:
        faults.on("CopySnapshot", lost(attempts=1))  # botocore repeats it
        assert published.type("copy", NAME, "--to-region", ELSEWHERE) == 0, published.text
    (copied,) = published.snapshots(ELSEWHERE)
    assert copied.status == "completed"


def test_a_copy_of_another_content_leaves_nothing_of_the_old_one(published: Desk) -> None:
    """It would be billed for ever; and with its manifest, new shards would be read by the old index."""
    there = Ec2Account(ELSEWHERE, rules=published.account.rules)
    there.make_bucket(there.bucket)
    assert published.type("copy", NAME, "--to-region", ELSEWHERE) == 0, published.text
    there.put(there.bucket, f"data/{NAME}/train/000001.tar", b"of more shards than the new content has")
    write_prepared(published.folder, seed=1)
    assert published.publish("--replace") == 0, published.text

    with injected(Faults()) as faults:
        faults.on("CopyObject", died_after())
        with pytest.raises(Died):
            published.type("copy", NAME, "--to-region", ELSEWHERE)
    assert f"data/{NAME}/manifest.json" not in there.objects()

    assert published.type("copy", NAME, "--to-region", ELSEWHERE) == 0, published.text
    mine = {key.removeprefix(f"data/{NAME}/"): one.value for key, one in there.objects().items()}
    assert mine == published.s3()
    tags = [{tag["key"]: tag["value"] for tag in one.get_tags()} for one in published.snapshots(ELSEWHERE)]
    assert [one["aws-ddp-toolkit:digest"] for one in tags] == [published.record["digest"]]


def test_what_is_not_published_to_the_end_is_not_copied(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """It would take the place of what is whole there."""
    there = Ec2Account(ELSEWHERE, rules=desk.account.rules)
    there.make_bucket(there.bucket)
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", died_after())
        with pytest.raises(Died):
            desk.publish()

    assert desk.type("copy", NAME, "--to-region", ELSEWHERE) == 2
    assert f"{NAME} is not completely published in us-east-1; publish it again first." in capsys.readouterr().err
    assert there.objects() == {}


def test_a_copy_needs_the_toolkits_bucket_there(published: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert published.type("copy", NAME, "--to-region", ELSEWHERE) == 4
    assert "there is no bucket" in capsys.readouterr().err


def test_delete_asks_and_then_leaves_nothing(published: Desk) -> None:
    asked: list[str] = []
    published.confirms = asked.append

    assert published.type("delete", NAME) == 0
    assert asked == [f"this deletes data set {NAME} in us-east-1"]
    assert (published.s3(), published.account.left()) == ({}, [])


def test_delete_leaves_a_snapshot_that_is_not_wholly_its_own(published: Desk) -> None:
    by_hand = published.account.ec2.snapshots[published.account.snapshot]
    by_hand.add_tags({DATA_TAG: NAME})

    assert published.type("delete", NAME, "--yes") == 0
    assert [one.id for one in published.snapshots()] == [by_hand.id]


@pytest.mark.parametrize("words", [("delete", NAME, "--yes"), ("publish", "FOLDER", "--name", NAME, "--replace")])
def test_nothing_is_taken_from_a_job_that_reads_it(
    words: tuple[str, ...], published: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    reads_it(published)
    write_prepared(published.folder, seed=1)
    before = published.s3()

    assert published.type(*(str(published.folder) if word == "FOLDER" else word for word in words)) == 2
    assert f"{NAME} is in use by one (EC2)" in capsys.readouterr().err
    assert published.s3() == before


@pytest.mark.parametrize("how", ["data-s3", "data-url"])
def test_jobs_that_read_it_from_s3_are_seen(how: str, published: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    reads_it(published, how)

    assert published.type("delete", NAME, "--yes") == 2
    assert f"{NAME} is in use by one (EC2)" in capsys.readouterr().err


def test_a_running_job_whose_settings_cannot_be_read_keeps_the_data_and_is_named_with_what_ends_it(
    published: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any launcher may have written them, and who deletes the data may not be who can put them right."""
    reads_it(published)
    published.account.put_json("jobs/one/job.json", ["no object"])

    assert published.type("delete", NAME, "--yes") == 4
    assert published.s3()
    said = capsys.readouterr().err
    assert "what job one, which runs on EC2, reads is not known" in said
    assert "or end it: python -m launch.ec2 stop one --region us-east-1" in said


@pytest.mark.parametrize(("job", "bucket"), [("one", "no bucket!"), ("one", ""), ("../one", "a-bucket"), ("", "")])
def test_a_tag_that_no_job_has_keeps_nobody_from_deleting(job: str, bucket: str, published: Desk) -> None:
    """Whoever may start a machine may give it any tag; botocore takes no request for such a bucket."""
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
def test_what_is_not_there_is_said(verb: str, desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.type(verb, "nothing") == 2
    assert "there is no data set nothing in us-east-1; see python -m launch.data list." in capsys.readouterr().err


def test_a_name_that_aws_or_a_policy_could_misread_is_refused(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.type("publish", str(desk.folder), "--name", "../jobs") == 2
    assert "lower-case letters, digits and hyphens" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("publish", "FOLDER"), ("copy", NAME, "--to-region", ELSEWHERE)])
def test_a_key_that_is_no_arn_is_refused_before_anything_is_sent(
    words: tuple[str, ...], desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """https://docs.aws.amazon.com/ebs/latest/APIReference/API_StartSnapshot.html takes an ARN, and no alias."""
    typed = [str(desk.folder) if word == "FOLDER" else word for word in words]

    assert desk.type(*typed, "--kms-key", "alias/mine") == 2
    assert "alias/mine is not the ARN of a key" in capsys.readouterr().err
    assert desk.account.requests == []
