"""The checks of every request to the embedded AWS, as AWS documents them: IAM, S3's 403, DryRun, throttling."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from launch.rehearse.aws.access import Throttling
from launch.rehearse.aws.calls import Call, SignedCall
from launch.rehearse.aws.iam.callers import Caller, denied
from launch.rehearse.aws.iam.policies import FULL_ACCESS, Need
from tests.launch.ec2.account import Account

KEY = "AKIAUSERUSERUSERUSER"
ONE_TRY = Config(retries={"total_max_attempts": 1})
BUCKET = Account.bucket


@pytest.fixture
def account() -> Iterator[Account]:
    with Account.opened() as opened:
        yield opened


def client(service: str, key: str = KEY) -> Any:
    return boto3.client(service, "us-east-1", aws_access_key_id=key, aws_secret_access_key="no secret", config=ONE_TRY)


def refusal(act: Any, **params: Any) -> tuple[str, int]:
    """AWS's error code and status."""
    with pytest.raises(ClientError) as error:
        act(**params)
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def grants(action: str, resource: str = "*", **condition: Any) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": action, "Resource": resource}
    return {"Statement": [{**statement, "Condition": condition} if condition else statement]}


# ---- IAM


def test_a_caller_without_a_policy_is_refused_with_each_services_error(account: Account) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html#CommonErrors, ..."""
    account.rules.access.callers[KEY] = Caller("arn:aws:iam::1:user/u", ())
    group = {"logGroupNamePrefix": "/payroll"}
    assert refusal(client("ec2").describe_volumes) == ("UnauthorizedOperation", 403)
    assert refusal(client("s3").get_object, Bucket=BUCKET, Key="k") == ("AccessDenied", 403)
    assert refusal(client("iam").get_role, RoleName="admin") == ("AccessDenied", 403)
    assert refusal(client("logs").describe_log_groups, **group) == ("AccessDeniedException", 400)
    assert refusal(client("ecr").describe_images, repositoryName="repository") == ("AccessDeniedException", 400)
    assert refusal(client("scheduler").list_schedules) == ("AccessDeniedException", 403)
    assert refusal(client("service-quotas").get_service_quota, ServiceCode="ec2", QuotaCode="L-1") == (
        "AccessDeniedException",
        400,
    )


def test_every_caller_may_get_its_identity(account: Account) -> None:
    """https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html"""
    account.rules.access.add(KEY, "arn:aws:iam::1:user/u", "scheduler")
    assert client("sts").get_caller_identity()["Account"] == account.id


def test_a_dry_run_reports_whether_the_call_is_allowed_and_does_nothing(account: Account) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/CommonParameters.html"""
    account.rules.access.add(KEY, "arn:aws:iam::1:user/u", "scheduler", grants("ec2:CreatePlacementGroup"))
    asked = {"GroupName": "g", "Strategy": "cluster", "DryRun": True}
    assert refusal(client("ec2").create_placement_group, **asked) == ("DryRunOperation", 412)
    assert refusal(client("ec2").delete_placement_group, GroupName="g", DryRun=True) == ("UnauthorizedOperation", 403)
    assert account.rules.placement_groups == {}


# ---- S3


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ({}, "NoSuchKey"),
        ({"StringLike": {"s3:prefix": "jobs/*"}}, "AccessDenied"),  # the question has no prefix
        (None, "AccessDenied"),
    ],
)
def test_a_missing_object_is_404_only_for_callers_that_may_list_the_bucket(
    account: Account, condition: dict[str, Any] | None, code: str
) -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html, "Permissions" """
    may_list = [] if condition is None else [grants("s3:ListBucket", "*", **condition)]
    account.rules.access.add(KEY, "arn:aws:iam::1:user/u", "scheduler", grants("s3:GetObject"), *may_list)
    account.put_json("there", {})
    s3, status = client("s3"), "404" if code == "NoSuchKey" else "403"
    assert refusal(s3.get_object, Bucket=BUCKET, Key="missing") == (code, int(status))
    assert refusal(s3.head_object, Bucket=BUCKET, Key="missing") == (status, int(status))
    assert s3.get_object(Bucket=BUCKET, Key="there")["Body"].read() == b"{}"


# ---- throttling: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html


def accepted(throttling: Throttling, operation: str, params: dict[str, Any]) -> int:
    """How many such calls are not throttled, now."""
    signed = SignedCall(Call("ec2", operation, params), KEY, Account.id, "us-east-1")
    return next(number for number in count() if throttling.check(signed))


@pytest.mark.parametrize(
    ("operation", "params", "most", "a_second_later"),
    [
        ("DescribeVolumes", {"MaxResults": 5}, 100, 20),
        ("DescribeVolumes", {"Filters": []}, 100, 20),
        ("DescribeVolumes", {}, 50, 10),  # without a filter or pages
        ("DescribeImages", {}, 100, 20),
        ("CreateSecurityGroup", {}, 50, 5),
        ("RunInstances", {"MaxCount": 1}, 5, 2),
        ("RunInstances", {"MaxCount": 400}, 2, 0),  # of 1,000 instances
        ("TerminateInstances", {"InstanceIds": ["i-1"] * 20}, 50, 1),
    ],
)
def test_an_operations_bucket_holds_so_many_tokens_and_fills_again(
    operation: str, params: dict[str, Any], most: int, a_second_later: int
) -> None:
    now = [0.0]
    throttling = Throttling(lambda: now[0])
    assert accepted(throttling, operation, params) == most
    now[0] += 1
    assert accepted(throttling, operation, params) == a_second_later
    now[0] += 1_000
    assert accepted(throttling, operation, params) == most


def test_each_operation_has_a_bucket_of_its_own(account: Account) -> None:
    account.rules.access.throttling = Throttling(lambda: 0.0)
    ec2 = client("ec2")
    for _ in range(5):
        assert refusal(ec2.run_instances, ImageId="ami-1", MinCount=1, MaxCount=1)[0] != "RequestLimitExceeded"
    assert refusal(ec2.run_instances, ImageId="ami-1", MinCount=1, MaxCount=1) == ("RequestLimitExceeded", 503)
    assert ec2.describe_volumes()["Volumes"] == []


def test_a_boundary_takes_rights_away_and_is_named() -> None:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_boundaries.html"""
    reading = {"Statement": [{"Effect": "Allow", "Action": ["s3:Get*"], "Resource": "*"}]}
    caller = Caller("arn:aws:iam::1:user/u", (FULL_ACCESS,), boundary=(reading,))
    assert caller.may(Need("s3:GetObject", "arn:aws:s3:::b/k"))
    write = Need("s3:PutObject", "arn:aws:s3:::b/k")
    assert "because no permissions boundary allows the s3:PutObject action" in denied("s3", caller, write).message
    powerless = Caller("arn:aws:iam::1:user/u", (), boundary=(reading,))
    assert "because no identity-based policy allows" in denied("s3", powerless, write).message
