"""What every backend asks of AWS: its failures in words, and what lies in a job's folder."""

from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.lookup import Lookups, check_bucket, describe_profile, describe_role, read_json, region_or_some, spec_of
from launch.aws.names import Folder
from launch.core.errors import AwsError
from tests.launch.ec2.account import Account
from tests.launch.faults import Faults, refused
from trainer.errors import SettingsError


def test_what_fails_is_a_problem_if_needed_and_else_only_unknown() -> None:
    def fail() -> int:
        raise error

    lookups, error = Lookups(), SettingsError("nothing there")

    assert (lookups.required(lambda: 1, 0), lookups.optional("a price", lambda: 2, 0)) == (1, 2)
    assert (lookups.required(fail, 3), lookups.optional("a price", fail, 4)) == (3, 4)
    assert (lookups.problems, len(lookups.unknown)) == ([error], 1)


def test_some_region_is_taken_only_where_none_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert region_or_some(Aws("eu-west-1")) == "eu-west-1"
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert region_or_some(Aws()) == "us-east-1"


# ---- the bucket, and roles


def test_a_bucket_of_another_region_is_a_problem(account: Account, aws: Aws) -> None:
    account.make_bucket("elsewhere", "eu-west-1")

    check_bucket(aws, account.bucket, account.id)
    with pytest.raises(AwsError, match=r"bucket elsewhere is in eu-west-1 .* --bucket"):
        check_bucket(aws, "elsewhere", account.id)


def test_a_bucket_of_somebody_else_is_a_problem(account: Account, aws: Aws, faults: Faults) -> None:
    """AWS refuses to look at a bucket whose owner is not who is expected, however public it is."""
    faults.on("HeadBucket", refused("403", 403, "Forbidden"))

    with pytest.raises(AwsError, match=r"bucket theirs .* --bucket, .*infra/iam/launcher\.json"):
        check_bucket(aws, "theirs", "123456789012")
    assert account.asked("HeadBucket") == [{"Bucket": "theirs", "ExpectedBucketOwner": "123456789012"}]


@pytest.mark.parametrize(
    ("describe", "operation", "what"),
    [(describe_role, "GetRole", "role x"), (describe_profile, "GetInstanceProfile", "instance profile x")],
)
def test_only_what_is_missing_gets_a_remedy(describe: Any, operation: str, what: str, aws: Aws, faults: Faults) -> None:
    with pytest.raises(AwsError, match=f"the account has no {what}; .* choose another with --option"):
        describe(aws, "x", "--option")
    faults.on(operation, refused("AccessDenied", 403), nth=None)
    with pytest.raises(AwsError, match=f"may not iam:{operation}"):
        describe(aws, "x", "--option")


# ---- reading from S3


def test_a_file_that_is_not_there_is_nothing(account: Account, aws: Aws) -> None:
    assert read_json(aws, account.bucket, "jobs/j/job.json") is None
    assert read_json(aws, "nothing-there", "jobs/j/job.json") is None


def test_a_file_that_cannot_be_read_is_an_error(account: Account, aws: Aws, faults: Faults) -> None:
    faults.on("GetObject", refused("AccessDenied", 403))

    with pytest.raises(AwsError, match="these credentials may not s3:GetObject"):
        read_json(aws, account.bucket, "k")


def test_the_spec_is_the_folders_job_json(account: Account, aws: Aws) -> None:
    account.put_json("jobs/j/job.json", {"job": "j"})

    assert spec_of(aws, Folder(account.bucket, "j"), "ec2") == {"job": "j"}
    assert spec_of(aws, Folder(account.bucket, "k"), "ec2") is None


def test_a_job_of_another_backend_is_named_with_the_command_that_shows_it(account: Account, aws: Aws) -> None:
    account.put_json("jobs/j/job.json", {"job": "j", "backend": "sagemaker"})

    with pytest.raises(SettingsError, match=r"see python -m launch\.sagemaker status j, or choose another"):
        spec_of(aws, Folder(account.bucket, "j"), "ec2")
