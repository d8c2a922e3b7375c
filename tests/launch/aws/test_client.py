"""What AWS and the way to it can do to a user, in one sentence each, through botocore's own errors."""

import itertools
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import boto3
import botocore.session
import pytest
from botocore.exceptions import BotoCoreError, IncompleteReadError, ResponseStreamingError
from moto import mock_aws

from launch.aws.client import PAUSES_S, Aws
from launch.aws.refusals import BUSY, may_have_taken_effect, sentence
from launch.aws.retry import is_transient
from launch.core.errors import AwsError, Forbidden, NoAnswer, NotSetUp, NotYetAllowed
from launch.rehearse.aws.iam.callers import Caller
from tests.launch.ec2.account import Account
from tests.launch.faults import Fault, Faults, injected, lost, refused, throttled, unreachable
from trainer.errors import TrainerError

NO_CREDENTIALS = "no AWS credentials; run aws configure or aws sso login, or set AWS_PROFILE."
WHO_AM_I = ("sts", "GetCallerIdentity")


def error_of(act: Callable[..., Any], *args: Any) -> TrainerError:
    with pytest.raises(TrainerError) as caught:
        act(*args)
    return caught.value


@contextmanager
def nobody_answers() -> Iterator[str]:
    """A URL at which connections are taken and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def nobody_listens() -> Iterator[str]:
    """A URL at which connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")


# ---- this machine is not set up


@pytest.mark.usefixtures("no_credentials")
def test_without_credentials_or_a_region_the_user_learns_how_to_get_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else may be wrong with a configuration is in test_refusals.py."""
    error = error_of(Aws("us-east-1").call, *WHO_AM_I)
    assert (type(error), str(error), error.code) == (NotSetUp, NO_CREDENTIALS, 2)

    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    error = error_of(Aws().call, *WHO_AM_I)
    assert (type(error), error.code) == (NotSetUp, 2)
    assert "--region us-east-1" in str(error)


@pytest.mark.usefixtures("no_credentials")
def test_a_machine_outside_ec2_does_not_wait_for_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    with nobody_answers() as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        took = []
        for _ in range(3):  # the machine may be busy
            aws = Aws("us-east-1")
            assert aws.region == "us-east-1"  # importing boto3 is not what is measured
            started = time.monotonic()
            assert str(error_of(aws.call, *WHO_AM_I)) == NO_CREDENTIALS
            took.append(time.monotonic() - started)

    assert min(took) < 1.0


def write_config(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Path:
    """Makes `text` AWS's configuration, with the credentials of its default profile."""
    file = folder / "config"
    file.write_text(text)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    return file


ROLE = "[default]\nrole_arn = arn:aws:iam::123456789012:role/dev\nsource_profile = base\n[profile base]\n"
KEYS = "aws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = x\n"


def me(region: str) -> str:
    return str(Aws(region).call(*WHO_AM_I)["UserId"])


@mock_aws(config={"core": {"mock_credentials": False}})
def test_a_process_assumes_a_role_once_for_all_connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each time it may ask for the code of a second factor."""
    config = write_config(monkeypatch, tmp_path, ROLE + KEYS)
    seconds = itertools.count(1_790_000_000)
    monkeypatch.setattr("botocore.credentials.time", SimpleNamespace(time=lambda: next(seconds)))
    first, second = me("us-east-1"), me("eu-west-1")
    assert first.partition(":")[2] == second.partition(":")[2]  # before it moto has another id each time

    config.write_text(ROLE.replace("[profile base]", "role_session_name = ann\n[profile base]") + KEYS)
    assert me("us-east-1").endswith(":ann")


# ---- AWS refuses


@pytest.mark.parametrize(
    ("code", "named"),
    [
        *[(code, "aws sso login") for code in ("ExpiredToken", "ExpiredTokenException", "RequestExpired")],
        *[
            (code, "aws sts get-caller-identity")
            for code in ("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch")
        ],
        ("SomethingNew", "AWS refused ec2:DescribeVolumes: It is Tuesday (SomethingNew)."),
        ("InvalidParameterCombination", "It is Tuesday; "),
        ("AuthorizationHeaderMalformed", "--bucket"),
    ],
)
def test_a_refusal_names_what_to_do(aws: Aws, faults: Faults, code: str, named: str) -> None:
    faults.on("DescribeVolumes", refused(code, 401, "It is Tuesday."))
    error = error_of(aws.call, "ec2", "DescribeVolumes")

    assert (type(error), error.code) == (AwsError, 4)
    assert named in str(error)


@pytest.mark.parametrize(
    "code", ["OptInRequired", "InvalidClientTokenId", "UnrecognizedClientException", "AuthFailure"]
)
def test_a_region_that_is_not_enabled_comes_with_the_command_that_enables_it(code: str) -> None:
    """Most services know no key there: https://docs.aws.amazon.com/accounts/latest/reference/manage-acct-regions.html"""
    command = "aws account enable-region --region-name eu-south-2"
    assert command in sentence(code, "It is Tuesday.", "sts:GetCallerIdentity", "eu-south-2")


@pytest.mark.parametrize(
    ("service", "operation", "params", "code", "permission"),
    [
        ("ec2", "DescribeVolumes", {}, "UnauthorizedOperation", "ec2:DescribeVolumes"),
        ("iam", "GetRole", {"RoleName": "r"}, "AccessDenied", "iam:GetRole"),
        ("ssm", "GetParameter", {"Name": "p"}, "AccessDeniedException", "ssm:GetParameter"),
        ("s3", "ListObjectsV2", {"Bucket": "bucket"}, "AccessDenied", "s3:ListBucket"),
        ("service-quotas", "GetServiceQuota", {"ServiceCode": "ec2", "QuotaCode": "q"}, "AccessDeniedException",
         "servicequotas:GetServiceQuota"),
    ],
)  # fmt: skip
def test_a_missing_permission_is_named_with_the_policy_that_has_it(  # type: ignore[no-untyped-def]
    aws, faults, service, operation, params, code, permission
) -> None:
    faults.on(operation, refused(code, 403))
    error = error_of(aws.call, service, operation, params)

    assert (type(error), error.code, error.aws_code) == (NotYetAllowed, 4, code)
    policy = "reader" if permission.startswith("servicequotas:") else "launcher"
    assert f"may not {permission}; " in str(error)
    assert f"infra/iam/{policy}.json" in str(error)


DENIAL = "User: arn:aws:iam::1:user/u is not authorized to perform: x:Y on resource: arn:aws:x:::y "


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("AccessDeniedException", DENIAL + "because no identity-based policy allows the x:Y action", NotYetAllowed),
        ("AccessDenied", "Access Denied", NotYetAllowed),
        ("UnauthorizedOperation", DENIAL + "with an explicit deny in an identity-based policy", AwsError),
        ("AccessDeniedException", DENIAL + "with an explicit deny in a permissions boundary", AwsError),
        ("AccessDeniedException", DENIAL + "because no permissions boundary allows the x:Y action", AwsError),
        ("AccessDeniedException", DENIAL + "with an explicit deny in a resource control policy", AwsError),
        ("AccessDeniedException", DENIAL + "with an explicit deny in a service control policy", Forbidden),
        ("InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance "
         "Profile name", NotYetAllowed),
        ("ValidationException", "Could not assume role arn:aws:iam::1:role/r. Please ensure that the role exists and "
         "allows principal 'sagemaker.amazonaws.com' to assume the role.", NotYetAllowed),
        ("ValidationException", "The execution role you provide must allow AWS EventBridge Scheduler to assume the "
         "role.", NotYetAllowed),
        ("ValidationException", "1 validation error detected", AwsError),
    ],
)  # fmt: skip
def test_only_what_may_be_too_new_is_worth_a_retry(
    aws: Aws, faults: Faults, code: str, message: str, kind: type[AwsError]
) -> None:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html"""
    faults.on("GetRole", refused(code, 403, message))
    assert type(error_of(aws.call, "iam", "GetRole", {"RoleName": "r"})) is kind


def test_a_permission_that_iam_itself_refuses_is_named(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.rules.access.callers["AKIANOBODY"] = Caller(f"arn:aws:iam::{account.id}:user/u", ())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANOBODY")
    assert "may not ec2:DescribeVolumes" in str(error_of(Aws("us-east-1").call, "ec2", "DescribeVolumes"))


@pytest.mark.parametrize(
    ("code", "message", "operation", "named"),
    [
        ("UnauthorizedOperation", "", "PurchaseHostReservation", "ask for a policy"),  # which none of infra/iam grants
        ("AuthFailure", "Not authorized for images: [ami-1]", "DescribeImages", "--ami"),
        ("InvalidParameterCombination", "{region}", "RunInstances", "{region}; "),
    ],
)  # fmt: skip
def test_a_sentence_names_what_is_meant(code: str, message: str, operation: str, named: str) -> None:
    assert named in sentence(code, message, f"ec2:{operation}", "us-east-1")


@pytest.mark.parametrize(
    ("service", "operation", "params", "remedy"),
    [
        ("ec2", "DescribeSnapshots", {"SnapshotIds": ["snap-0123456789abcdef0"]}, "aws ec2 copy-snapshot"),
        ("ec2", "DescribeImages", {"ImageIds": ["ami-0123456789abcdef0"]}, "--ami"),
        ("ec2", "DescribeSubnets", {"SubnetIds": ["subnet-0123456789abcdef0"]}, "--subnet"),
        ("ec2", "DescribeCapacityReservations", {"CapacityReservationIds": ["cr-0123456789abcdef0"]}, "us-east-1"),
        ("ecr", "DescribeImages", {"repositoryName": "nothing", "imageIds": [{"imageTag": "latest"}]},
         "python -m launch.infra up"),
        ("ecr", "DescribeImages", {"repositoryName": "aws-ddp-toolkit", "imageIds": [{"imageTag": "v0"}]},
         "python -m launch.image push"),
        ("s3", "GetObject", {"Bucket": "nothing-there", "Key": "k"}, "--bucket"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named_with_a_remedy(aws: Aws, service, operation, params, remedy) -> None:  # type: ignore[no-untyped-def]
    error = error_of(aws.call, service, operation, params)

    assert (type(error), error.code) == (AwsError, 4)
    assert remedy in str(error)


def test_the_beginning_or_the_end_of_an_object_is_read(account: Account) -> None:
    """Files that others may write into a job's folder are requested in part, so that S3 does not send the rest."""
    aws = account.aws()
    for key, body in (("long", b"0123456789"), ("empty", b"")):
        aws.call("s3", "PutObject", {"Bucket": account.bucket, "Key": key, "Body": body})
    assert aws.read(account.bucket, "long", 4) == b"0123"
    assert aws.read(account.bucket, "long", 4, end=True) == b"6789"
    for most in (10, 11):
        assert (
            aws.read(account.bucket, "long", most) == aws.read(account.bucket, "long", most, end=True) == b"0123456789"
        )
    assert aws.read(account.bucket, "empty") == aws.read(account.bucket, "empty", end=True) == b""
    assert aws.read(account.bucket, "missing", end=True) is None


# ---- AWS is busy, or away


def test_a_throttled_request_is_retried_with_growing_pauses(aws: Aws, faults: Faults) -> None:
    faults.on("GetCallerIdentity", throttled(attempts=5))

    assert aws.call(*WHO_AM_I)["Account"] == "123456789012"
    assert len(faults.slept) == 5
    # Each pause is a random part of 1, 2, 4, 8, 16 s.
    assert all(0 <= pause <= 2**number for number, pause in enumerate(faults.slept))


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [(throttled(), AwsError, "RequestLimitExceeded"), (refused("InternalError", 500), NoAnswer, "InternalError")],
)
def test_an_aws_that_stays_busy_is_called_so_and_may_have_done_it_before(  # type: ignore[no-untyped-def]
    aws, faults, fault, kind, code
) -> None:
    faults.on("CreateVolume", fault)
    error = error_of(aws.call, "ec2", "CreateVolume", {"AvailabilityZone": "us-east-1a", "Size": 1})

    assert (type(error), error.code, error.aws_code) == (kind, 4, code)
    assert f"was refused 6 times ({code})" in str(error)
    assert len(faults.slept) == 5


@pytest.mark.parametrize(
    ("code", "status", "is_failure"),
    [("InternalServerException", 500, True), ("SomeFault", 500, True), ("502", 502, True), ("504", 504, True),
     ("ServiceUnavailableException", 503, True), ("InsufficientInstanceCapacity", 500, False),
     ("InsufficientSomethingElse", 500, False), ("NotImplemented", 500, False)],
)  # fmt: skip
def test_a_failure_of_aws_is_transient_and_a_refusal_is_not(
    aws: Aws, faults: Faults, code: str, status: int, is_failure: bool
) -> None:
    """Each service has codes of its own for both; a stop that met EventBridge's ended with no node ended."""
    faults.on("ListSchedules", refused(code, status))
    error = error_of(aws.call, "scheduler", "ListSchedules")

    assert isinstance(error, AwsError)
    assert (error.aws_code, isinstance(error, NoAnswer), is_transient(error)) == (code, is_failure, is_failure)


def _failures(service: str) -> Iterator[tuple[str, int]]:
    """The codes, and the statuses, of a service's own failures and of its limits of requests, by AWS's model of it."""
    model = botocore.session.get_session().get_service_model(service)
    operations = [model.operation_model(name) for name in model.operation_names]
    for shape in [shape for operation in operations for shape in operation.error_shapes]:
        about = shape.metadata.get("error", {})
        code, status = about.get("code") or shape.name, about.get("httpStatusCode", 0)
        is_limit = status == 429 and code != "ConcurrentResourcesLimitExceeded"  # of stacks that are being made
        if shape.metadata.get("fault") or status >= 500 or is_limit or "Throttl" in code:
            yield code, status


def test_every_failure_of_a_service_is_transient() -> None:
    """What does not pass ends a stop before a machine is ended, and a launcher takes its job down for it."""
    cases = [
        "scheduler", "sagemaker", "logs", "s3", "ssm", "ebs", "pricing", "ecr", "budgets",
        "codebuild", "cloudformation", "iam", "sts", "ec2", "service-quotas"
    ]  # fmt: skip
    for service in cases:
        for code, status in _failures(service):
            assert code in BUSY or may_have_taken_effect(code, status), (service, code)


def test_a_lack_of_machines_is_not_retried(account: Account, aws: Aws, faults: Faults) -> None:
    account.capacity["us-east-1a"] = 0
    asked = {"ImageId": account.ami, "InstanceType": "g5.2xlarge", "MinCount": 1, "MaxCount": 1,
             "SubnetId": account.subnets["us-east-1a"]}  # fmt: skip
    error = error_of(aws.call, "ec2", "RunInstances", asked)

    assert (type(error), error.aws_code) == (AwsError, "InsufficientInstanceCapacity")
    assert faults.slept == []


def test_an_aws_that_cannot_be_reached_is_called_so(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    with nobody_listens() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        error = error_of(Aws("us-east-1").call, *WHO_AM_I)

    assert (type(error), error.code) == (AwsError, 4)
    assert url in str(error)
    assert "--region" in str(error)


def test_a_proxy_with_its_own_certificate_is_called_so(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    def untrusted(*_: object, **__: object) -> None:
        raise ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")

    monkeypatch.setattr("ssl.SSLContext.wrap_socket", untrusted)
    with nobody_answers() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url.replace("http", "https"))
        error = error_of(Aws("us-east-1").call, *WHO_AM_I)

    assert (type(error), error.code) == (AwsError, 4)
    assert "AWS_CA_BUNDLE" in str(error)


def test_an_answer_that_does_not_come_leaves_it_open(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    monkeypatch.setattr("launch.aws.client.READ_TIMEOUT_S", 0.05)
    with nobody_answers() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        error = error_of(Aws("us-east-1").call, *WHO_AM_I)

    assert (type(error), error.code) == (NoAnswer, 4)
    assert len(faults.slept) == 5


def test_a_lost_answer_is_retried(aws: Aws, faults: Faults) -> None:
    faults.on("GetCallerIdentity", lost(attempts=2))

    assert aws.call(*WHO_AM_I)["Account"] == "123456789012"
    assert len(faults.slept) == 2


def test_a_request_that_left_once_stays_open_when_the_network_goes(account: Account, aws: Aws, faults: Faults) -> None:
    faults.on("CreateVolume", _lost_and_then_unreachable())
    error = error_of(aws.call, "ec2", "CreateVolume", {"AvailabilityZone": "us-east-1a", "Size": 1})

    assert type(error) is NoAnswer
    assert [thing.split()[0] for thing in account.left()] == ["volume"]


def _lost_and_then_unreachable() -> Any:
    """What a laptop sees that is closed while it waits."""
    from dataclasses import replace

    faults = iter([lost(), *[unreachable()] * 5])
    return replace(lost(), answer=lambda call, protocol, url: next(faults).answer(call, protocol, url))


# ---- more than one page


def test_all_pages_are_read(account: Account, aws: Aws) -> None:
    trust = {"Effect": "Allow", "Principal": {"Service": "scheduler.amazonaws.com"}, "Action": "sts:AssumeRole"}
    role = boto3.client("iam").create_role(
        RoleName="r", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    )["Role"]["Arn"]
    for number in range(120):  # moto gives 50 on a page
        schedule = {
            "Name": f"s{number}", "ScheduleExpression": "at(2030-01-01T00:00:00)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:x", "RoleArn": role},
        }  # fmt: skip
        aws.call("scheduler", "CreateSchedule", schedule)
    found = aws.pages("scheduler", "ListSchedules", "Schedules")

    assert len({schedule["Name"] for schedule in found}) == 120
    assert account.operations.count("ListSchedules") == 3


# ---- answers that are not AWS's


@pytest.mark.parametrize(
    ("service", "operation", "status", "kind", "page"),
    [
        ("ec2", "DescribeSubnets", 200, "text/html", "\n<!DOCTYPE html><html><body>Sign in</body></html>"),
        ("sagemaker", "ListTrainingJobs", 500, "text/plain", "Internal Error"),
    ],
)
def test_a_proxys_page_is_no_answer(
    account: Account, service: str, operation: str, status: int, kind: str, page: str
) -> None:
    """Most parsers of botocore's take it for an empty answer, and others end in their own words."""
    fault = Fault(lambda *_: (status, {"content-type": kind}, page), False)
    with injected(Faults().on(operation, fault, nth=None)):
        error = error_of(account.aws().call, service, operation)

    assert isinstance(error, NoAnswer)
    assert "\n" not in str(error)


def test_a_page_in_place_of_an_answer_is_retried(account: Account) -> None:
    """I1: botocore repeats nothing that it cannot read."""
    fault = Fault(lambda *_: (200, {"content-type": "text/html"}, "<html>Sign in</html>"), False)
    with injected(Faults().on("DescribeSubnets", fault)) as faults:
        assert account.aws().pages("ec2", "DescribeSubnets", "Subnets")

    assert faults.slept == [PAUSES_S[0]]


@pytest.mark.parametrize(
    "breaks_off",
    [ResponseStreamingError(error="reset by peer"), IncompleteReadError(actual_bytes=1, expected_bytes=2)],
)
def test_an_object_that_breaks_off_is_a_lost_answer(breaks_off: BotoCoreError, account: Account) -> None:
    account.put_json("photo", "x")
    with mock.patch("botocore.response.StreamingBody.read", side_effect=breaks_off):
        error = error_of(account.aws().read, account.bucket, "photo")

    assert isinstance(error, NoAnswer)
