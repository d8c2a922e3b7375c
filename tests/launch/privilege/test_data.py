"""Least privilege of launch.data: a user with infra/iam/data.json only runs every verb, on a moto that evaluates
policies for every call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from launch.aws.client import Aws
from launch.aws.names import tags as job_tags
from launch.core.errors import AwsError
from launch.data import upload
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.iam.needs import AccountView, needs
from launch.rehearse.aws.iam.policies import Need, actions, allows, policy
from tests.launch.data.desk import NAME, Desk, opened, write_prepared
from tests.launch.faults import Died, Faults, Request, died_after, injected
from tests.launch.privilege.documented import documented, uses
from tests.launch.privilege.enforced import Watch, enforced
from tests.launch.privilege.publishing import by_instances

ELSEWHERE = "eu-west-1"
BUCKET = "aws-ddp-toolkit-123456789012-us-east-1"
OURS = {"aws-ddp-toolkit:dataset": "photos", "aws-ddp-toolkit:digest": "0", "aws-ddp-toolkit:blocks": "0"}
TAGS = [{"Key": key, "Value": value} for key, value in OURS.items()]
VIEW = AccountView("123456789012", "us-east-1", lambda name: OURS if name == "snap-ours" else {}, lambda _profile: [])


@contextmanager
def watched(folder: str) -> Iterator[tuple[Desk, Watch]]:
    with opened(Path(folder)) as desk:
        there = Ec2Account(ELSEWHERE, rules=desk.account.rules)
        there.make_bucket(there.bucket)
        with enforced(desk.account, "data") as watch:
            desk.make_aws = cache(partial(Aws, policy="data"))
            yield desk, watch


@cache
def all_commands() -> Watch:
    """The calls of all verbs, with an interrupted upload and a job that runs; fails where a verb does."""
    with TemporaryDirectory() as folder, watched(folder) as (desk, watch), pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "PART", 5 * 2**20)  # the least that S3 takes
        write_prepared(desk.folder, (6_000_000, 40_000))
        with injected(Faults()) as faults:
            faults.on("UploadPart", died_after())
            with pytest.raises(Died):
                desk.publish()
        start_job(desk)
        for words in ((), ("--dry-run",)):
            assert desk.publish(*words) == 0, desk.text
        write_prepared(desk.folder, (6_000_000, 40_000), seed=1)
        assert desk.publish("--replace", "--verify", "sample", "--upload-mbit-s", "8") == 0, desk.text
        assert desk.publish("--to", "snapshot") == 0, desk.text
        assert desk.type("publish", str(desk.folder / "train"), "--name", "plain", "--plain", "--dry-run") == 0, (
            desk.text
        )
        for words in (("list",), ("show", NAME), ("copy", NAME, "--to-region", ELSEWHERE, "--dry-run"),
                      ("copy", NAME, "--to-region", ELSEWHERE), ("delete", NAME, "--dry-run"),
                      ("delete", NAME, "--yes")):  # fmt: skip
            assert desk.type(*words) == 0, desk.text
        watch.typed = desk.typed
        return watch


def start_job(desk: Desk) -> None:
    """One that reads something else."""
    desk.account.put_json("jobs/one/job.json", {"backend": "ec2", "snapshot": "snap-1", "where": {}})
    tags = job_tags("one", desk.account.bucket, datetime.now(UTC))
    node = {"ImageId": desk.account.ami, "MinCount": 1, "MaxCount": 1, "InstanceType": "g5.2xlarge",
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")  # not the user's
        desk.account.aws().call("ec2", "RunInstances", node)


def test_every_verb_works_with_this_policy_alone() -> None:
    assert all_commands().refused == []
    assert len(all_commands().calls) > 100


def test_every_documented_use_is_among_them() -> None:
    without_a_verb = {("", "")}  # as the module is called
    typed = uses([*all_commands().typed, *by_instances()[0].typed])
    assert documented("launch.data") - typed == without_a_verb


def granted() -> list[Need]:
    """With an instance it takes a launcher's policies, too; see test_publishing.py."""
    return [*all_commands().granted, *by_instances()[0].granted]


def test_every_grant_is_needed_by_a_verb() -> None:
    needed = {need.action for need in granted()}
    # Asked for each training job that runs; here there is none.
    assert actions("data") - needed == {"sagemaker:DescribeTrainingJob"}


def test_every_statement_is_needed() -> None:
    idle = {
        statement["Sid"]
        for statement in policy("data")["Statement"]
        if not any(allows([{"Statement": [statement]}], need) for need in granted())
    }
    assert idle == set()


@pytest.mark.parametrize(
    ("service", "operation", "params"),
    [
        ("s3", "PutObject", {"Bucket": BUCKET, "Key": "jobs/j/job.json"}),
        ("s3", "DeleteObject", {"Bucket": BUCKET, "Key": "jobs/j/run/model.pt"}),
        ("s3", "GetObject", {"Bucket": BUCKET, "Key": "jobs/j/run/model.pt"}),
        ("s3", "PutObject", {"Bucket": BUCKET, "Key": "aws-ddp-toolkit-builds/0.zip"}),
        ("s3", "PutObject", {"Bucket": "somebodys", "Key": "data/photos/manifest.json"}),
        ("ec2", "DeleteSnapshot", {"SnapshotId": "snap-payroll"}),
        ("ec2", "RunInstances", {"MinCount": 1, "MaxCount": 1, "ImageId": "ami-1"}),
        ("ec2", "CreateTags", {"Resources": ["snap-payroll"], "Tags": TAGS}),
        ("ebs", "GetSnapshotBlock", {"SnapshotId": "snap-payroll"}),
        ("ebs", "ListSnapshotBlocks", {"SnapshotId": "snap-payroll"}),
        ("ebs", "PutSnapshotBlock", {"SnapshotId": "snap-payroll"}),
        ("ebs", "StartSnapshot", {"VolumeSize": 1}),
        ("ec2", "CopySnapshot", {"SourceSnapshotId": "snap-payroll", "SourceRegion": "us-east-1"}),
        ("ec2", "CopySnapshot", {"SourceSnapshotId": "snap-payroll", "SourceRegion": "us-east-1",
                                 "TagSpecifications": [{"ResourceType": "snapshot", "Tags": TAGS}]}),
        ("ec2", "ModifySnapshotAttribute", {"SnapshotId": "snap-ours"}),
        ("iam", "PassRole", {}),
    ],
)  # fmt: skip
def test_what_is_no_data_set_stays_out_of_reach(service: str, operation: str, params: dict[str, object]) -> None:
    assert not all(allows([policy("data")], need) for need in needs(Request(service, operation, params), VIEW))


def test_launchers_cannot_change_what_is_published() -> None:
    for call in (
        Request("s3", "PutObject", {"Bucket": BUCKET, "Key": "data/photos/manifest.json"}),
        Request("ec2", "DeleteSnapshot", {"SnapshotId": "snap-ours"}),
        Request("ebs", "PutSnapshotBlock", {"SnapshotId": "snap-ours"}),
    ):
        assert not all(allows([policy("launcher")], need) for need in needs(call, VIEW))


def test_iam_refuses_it_as_well(tmp_path: Path) -> None:
    with watched(str(tmp_path)) as (desk, watch):
        by_hand = {"SnapshotId": desk.account.snapshot}
        with pytest.raises(AwsError, match="may not ec2:DeleteSnapshot"):
            Aws("us-east-1").call("ec2", "DeleteSnapshot", by_hand)
        assert len(watch.refused) == 1
