"""What AWS and the way to it can do to a user, in one sentence each, through botocore's own errors."""

import itertools
import json
import socket
import ssl
import subprocess
import sys
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
from botocore.exceptions import BotoCoreError, EndpointConnectionError, IncompleteReadError, ResponseStreamingError
from moto import mock_aws

from launch.aws.client import PAUSES_S, Aws
from launch.aws.refusals import BUSY, granted_by, may_have_taken_effect, sentence
from launch.aws.retry import is_transient
from launch.core.errors import AwsError, NoAnswer, NotSetUp
from launch.rehearse.aws.iam.callers import Caller
from tests.conftest import ROOT
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
def test_without_credentials_the_user_learns_how_to_get_some() -> None:
    error = error_of(Aws("us-east-1").call, *WHO_AM_I)

    assert (type(error), str(error), error.code) == (NotSetUp, NO_CREDENTIALS, 2)


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


def test_without_a_region_the_user_learns_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    error = error_of(Aws().call, *WHO_AM_I)

    assert (type(error), error.code) == (NotSetUp, 2)
    assert str(error) == "no AWS region; give --region us-east-1, or set AWS_DEFAULT_REGION."


def test_the_model_of_a_service_is_read_once_for_all_regions() -> None:
    """By a process of its own, as tests keep what botocore has read; by as many threads as a look around has."""
    program = """
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from botocore.loaders import JSONFileLoader
from launch.aws.client import Aws

read, load = Counter(), JSONFileLoader.load_file
JSONFileLoader.load_file = lambda self, path: read.update([path]) or load(self, path)
places = [Aws(region) for region in ("us-east-1", "us-west-2", "eu-west-1", "eu-north-1")]
with ThreadPoolExecutor(len(places)) as pool:
    urls = {client.meta.endpoint_url for client in pool.map(lambda aws: aws.client("scheduler"), places)}
assert len(urls) == len(places)
print([path for path, times in read.items() if "scheduler" in path and times > 1], len(read) > 2)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("[] True\n", "")


def test_a_region_that_is_none_is_refused_before_anything_is_asked() -> None:
    error = error_of(Aws("us east 1").call, *WHO_AM_I)

    assert (type(error), error.code) == (NotSetUp, 2)
    assert str(error) == (
        "Provided region_name 'us east 1' doesn't match a supported format; give --region us-east-1, or set "
        "AWS_DEFAULT_REGION."
    )


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_an_unknown_profile_is_named(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "environment":
        monkeypatch.setenv("AWS_PROFILE", "wrok")
    error = error_of(Aws("us-east-1", "wrok" if by == "argument" else None).call, *WHO_AM_I)

    assert (type(error), error.code) == (NotSetUp, 2)
    assert str(error) == (
        "The config profile (wrok) could not be found; check ~/.aws/config, or set AWS_PROFILE to another profile."
    )


def write_config(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Path:
    """Makes `text` AWS's configuration, with the credentials of its default profile."""
    file = folder / "config"
    file.write_text(text)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    return file


def test_a_damaged_configuration_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write_config(monkeypatch, tmp_path, "[default\nregion")
    error = error_of(Aws("us-east-1").call, *WHO_AM_I)

    assert (type(error), error.code) == (NotSetUp, 2)
    assert str(error) == (
        f"the AWS configuration does not work: Unable to parse config file: {file}; check AWS_CONFIG_FILE."
    )


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


@mock_aws(config={"core": {"mock_credentials": False}})
def test_a_role_that_could_not_be_assumed_in_one_region_is_in_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A misspelt region would else be asked for the rest of a notebook's life, whatever region is given then."""
    write_config(monkeypatch, tmp_path, ROLE + KEYS)
    convert = botocore.client.BaseClient._convert_to_request_dict

    def converted(self: Any, *args: Any, **more: Any) -> Any:
        if self.meta.region_name == "us-est-1":
            raise EndpointConnectionError(endpoint_url=self.meta.endpoint_url)
        return convert(self, *args, **more)

    monkeypatch.setattr("botocore.client.BaseClient._convert_to_request_dict", converted)
    assert "sts.us-est-1" in str(error_of(Aws("us-est-1").call, *WHO_AM_I))
    assert me("us-east-1")


def test_a_program_for_credentials_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_config(monkeypatch, tmp_path, "[default]\ncredential_process = false\n")
    error = error_of(Aws("us-east-1").call, *WHO_AM_I)

    assert (type(error), error.code) == (NotSetUp, 2)
    assert str(error).startswith("the AWS credentials cannot be loaded: Error when retrieving credentials from custom-")
    assert str(error).endswith("; check credential_process in profile default.")


def test_a_single_sign_on_that_has_ended_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_config(
        monkeypatch, tmp_path,
        "[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n"
        "[sso-session s]\nsso_region = us-east-1\nsso_start_url = https://example.awsapps.com/start\n",
    )  # fmt: skip
    error = error_of(Aws("us-east-1").call, *WHO_AM_I)

    assert (type(error), error.code) == (NotSetUp, 2)
    assert str(error).startswith("the AWS credentials cannot be loaded: ")
    assert str(error).endswith("; run aws sso login.")


# ---- AWS refuses


@pytest.mark.parametrize("code", ["ExpiredToken", "ExpiredTokenException", "RequestExpired"])
def test_expired_credentials_are_called_so(aws: Aws, faults: Faults, code: str) -> None:
    faults.on("GetCallerIdentity", refused(code, 403))
    error = error_of(aws.call, *WHO_AM_I)

    assert (type(error), error.code) == (AwsError, 4)
    assert str(error) == (
        "the AWS credentials have expired; get new ones (aws sso login), and start the same command again."
    )


def test_an_image_that_one_may_not_use_is_no_matter_of_credentials() -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html: AuthFailure says both."""
    said = sentence("AuthFailure", "Not authorized for images: [ami-1]", "ec2:DescribeImages", "us-east-1")
    assert said == "Not authorized for images: [ami-1]; give an AMI of us-east-1 with --ami, or leave it out."


@pytest.mark.parametrize(
    "code", ["AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch"]
)
def test_unknown_credentials_are_called_so(aws: Aws, faults: Faults, code: str) -> None:
    faults.on("DescribeVolumes", refused(code, 401))
    error = error_of(aws.call, "ec2", "DescribeVolumes")

    assert (type(error), error.code) == (AwsError, 4)
    assert str(error) == (
        "AWS does not accept these credentials in us-east-1; check `aws sts get-caller-identity`, this machine's "
        "clock, and whether the region is enabled for the account."
    )


@pytest.mark.parametrize(
    ("service", "operation", "params", "code", "permission"),
    [
        ("ec2", "DescribeVolumes", {}, "UnauthorizedOperation", "ec2:DescribeVolumes"),
        ("iam", "GetRole", {"RoleName": "r"}, "AccessDenied", "iam:GetRole"),
        ("ssm", "GetParameter", {"Name": "p"}, "AccessDeniedException", "ssm:GetParameter"),
        ("s3", "ListObjectsV2", {"Bucket": "bucket"}, "AccessDenied", "s3:ListBucket"),
        (
            "service-quotas",
            "ListServiceQuotas",
            {"ServiceCode": "sagemaker"},
            "AccessDeniedException",
            "servicequotas:ListServiceQuotas",
        ),
        (
            "service-quotas",
            "GetServiceQuota",
            {"ServiceCode": "ec2", "QuotaCode": "q"},
            "AccessDeniedException",
            "servicequotas:GetServiceQuota",
        ),
    ],
)
def test_a_missing_permission_is_named_with_the_policy_that_has_it(  # type: ignore[no-untyped-def]
    aws, faults, service, operation, params, code, permission
) -> None:
    faults.on(operation, refused(code, 403))
    error = error_of(aws.call, service, operation, params)

    assert (type(error), error.code, error.aws_code) == (AwsError, 4, code)
    policy = "reader" if permission.startswith("servicequotas:") else "launcher"
    assert str(error).startswith(f"these credentials may not {permission}; ")
    assert f"infra/iam/{policy}.json" in str(error)


def test_a_permission_that_iam_itself_refuses_is_named(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.rules.access.callers["AKIANOBODY"] = Caller(f"arn:aws:iam::{account.id}:user/u", ())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANOBODY")
    assert str(error_of(Aws("us-east-1").call, "ec2", "DescribeVolumes")).startswith(
        "these credentials may not ec2:DescribeVolumes"
    )


def test_an_action_that_no_policy_grants_is_sent_to_the_launchers() -> None:
    assert granted_by("ec2:PurchaseHostReservation") == "infra/iam/launcher.json"


def test_without_the_policies_at_hand_the_launchers_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("launch.aws.refusals.files", {"infra": tmp_path}.__getitem__)

    assert granted_by.__wrapped__("ec2:RunInstances") == "infra/iam/launcher.json"


@pytest.mark.parametrize(
    ("service", "operation", "params", "expected"),
    [
        (
            "ec2",
            "DescribeSnapshots",
            {"SnapshotIds": ["snap-0123456789abcdef0"]},
            "The snapshot 'snap-0123456789abcdef0' does not exist; give a snapshot of us-east-1, or copy it there: "
            "aws ec2 copy-snapshot.",
        ),
        (
            "ec2",
            "DescribeImages",
            {"ImageIds": ["ami-0123456789abcdef0"]},
            "The image id '[ami-0123456789abcdef0]' does not exist; give an AMI of us-east-1 with --ami, "
            "or leave it out.",
        ),
        (
            "ec2",
            "DescribeSubnets",
            {"SubnetIds": ["subnet-0123456789abcdef0"]},
            "The subnet ID 'subnet-0123456789abcdef0' does not exist; give subnets of us-east-1 with --subnet, "
            "or leave it out.",
        ),
        (
            "ec2",
            "DescribeCapacityReservations",
            {"CapacityReservationIds": ["cr-0123456789abcdef0"]},
            "The capacity reservation 'cr-0123456789abcdef0' does not exist; give one of us-east-1, or leave it out.",
        ),
        (
            "ecr",
            "DescribeImages",
            {"repositoryName": "nothing", "imageIds": [{"imageTag": "latest"}]},
            "The repository with name 'nothing' does not exist in the registry with id '123456789012' Create it "
            "(python -m launch.infra up) and push the image (python -m launch.image push), or give another --image.",
        ),
        (
            "ecr",
            "DescribeImages",
            {"repositoryName": "aws-ddp-toolkit", "imageIds": [{"imageTag": "v0"}]},
            "The image with imageId {imageDigest:'null', imageTag:'v0'} does not exist within the repository with "
            "name 'aws-ddp-toolkit' in the registry with id '123456789012' Push the image "
            "(python -m launch.image push), or give another --image.",
        ),
        (
            "s3",
            "GetObject",
            {"Bucket": "nothing-there", "Key": "k"},
            "there is no such bucket; create it (aws s3 mb s3://NAME --region us-east-1), or give another --bucket.",
        ),
    ],
)
def test_what_is_not_there_is_named_with_a_remedy(aws: Aws, service, operation, params, expected) -> None:  # type: ignore[no-untyped-def]
    error = error_of(aws.call, service, operation, params)

    assert (type(error), error.code, str(error)) == (AwsError, 4, expected)


def test_no_more_of_an_object_than_fits_is_read(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    aws = account.aws()
    place = {"Bucket": account.bucket, "Key": "long"}
    aws.call("s3", "PutObject", {**place, "Body": b"0123456789"})
    monkeypatch.setattr("launch.aws.client.MOST_BYTES", 4)
    assert aws.call("s3", "GetObject", place)["Body"].read() == b"0123"


def test_of_an_object_the_beginning_or_the_end_is_asked_for(account: Account) -> None:
    """What others may write into a job's folder is asked for in part, and so not even sent as a whole."""
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


def test_a_bucket_of_another_region_is_named_so(aws: Aws, faults: Faults) -> None:
    faults.on("GetObject", refused("AuthorizationHeaderMalformed", 400))

    assert str(error_of(aws.call, "s3", "GetObject", {"Bucket": "bucket", "Key": "k"})) == (
        "the bucket is in another region than us-east-1; give another --bucket."
    )


def test_an_error_that_nobody_foresaw_is_told_as_aws_tells_it(aws: Aws, faults: Faults) -> None:
    faults.on("DescribeVolumes", refused("SomethingNew", 400, "It is Tuesday."))
    error = error_of(aws.call, "ec2", "DescribeVolumes")

    assert str(error) == "AWS refused ec2:DescribeVolumes: It is Tuesday (SomethingNew)."


def test_a_message_with_braces_is_told_as_it_is() -> None:
    assert sentence("InvalidParameterCombination", "{region}", "ec2:RunInstances", "r") == (
        "{region}; change the options it names."
    )


# ---- AWS is busy, or away


def test_a_busy_aws_is_asked_again_with_growing_pauses(aws: Aws, faults: Faults) -> None:
    faults.on("GetCallerIdentity", throttled(attempts=5))

    assert aws.call(*WHO_AM_I)["Account"] == "123456789012"
    assert len(faults.slept) == 5
    # Each pause is a random part of 1, 2, 4, 8, 16 s.
    assert all(0 <= pause <= 2**number for number, pause in enumerate(faults.slept))


def test_an_aws_that_stays_busy_is_called_so(aws: Aws, faults: Faults) -> None:
    faults.on("DescribeVolumes", throttled())
    error = error_of(aws.call, "ec2", "DescribeVolumes")

    assert (type(error), error.code, error.aws_code) == (AwsError, 4, "RequestLimitExceeded")
    assert str(error) == (
        "AWS is busy: ec2:DescribeVolumes was refused 6 times (RequestLimitExceeded); try again in a minute."
    )
    assert len(faults.slept) == 5


def test_an_aws_that_stumbles_may_have_done_it_before(aws: Aws, faults: Faults) -> None:
    faults.on("CreateVolume", refused("InternalError", 500))
    error = error_of(aws.call, "ec2", "CreateVolume", {"AvailabilityZone": "us-east-1a", "Size": 1})

    assert (type(error), error.code, error.aws_code) == (NoAnswer, 4, "InternalError")
    assert str(error) == "AWS is busy: ec2:CreateVolume was refused 6 times (InternalError); try again in a minute."


@pytest.mark.parametrize(("code", "status"), [("InternalServerException", 500), ("SomeFault", 500), ("502", 502),
                                              ("504", 504), ("ServiceUnavailableException", 503)])  # fmt: skip
def test_an_aws_that_fails_by_whatever_name_is_no_refusal(aws: Aws, faults: Faults, code: str, status: int) -> None:
    """Each service has a code of its own for that; a stop that met EventBridge's ended with no node ended."""
    faults.on("ListSchedules", refused(code, status))
    error = error_of(aws.call, "scheduler", "ListSchedules")

    assert isinstance(error, NoAnswer)
    assert (error.aws_code, is_transient(error)) == (code, True)


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "InsufficientSomethingElse", "NotImplemented"])
def test_what_aws_cannot_do_is_a_refusal_also_with_the_status_of_a_failure(aws: Aws, faults: Faults, code: str) -> None:
    faults.on("CreateVolume", refused(code, 500))
    error = error_of(aws.call, "ec2", "CreateVolume", {"AvailabilityZone": "us-east-1a", "Size": 1})

    assert isinstance(error, AwsError)
    assert not isinstance(error, NoAnswer)
    assert (error.aws_code, is_transient(error)) == (code, False)


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


@pytest.mark.parametrize("service", ["scheduler", "sagemaker", "logs", "s3", "ssm", "ebs", "pricing", "ecr", "budgets",
                                     "codebuild", "cloudformation", "iam", "sts", "ec2", "service-quotas"])  # fmt: skip
def test_every_way_in_which_aws_says_that_it_is_busy_passes(service: str) -> None:
    """What does not pass ends a stop before a machine is ended, and a launcher takes its job down for it."""
    for code, status in _failures(service):
        assert code in BUSY or may_have_taken_effect(code, status), (service, code)


def test_a_lack_of_machines_is_not_asked_for_again(account: Account, aws: Aws, faults: Faults) -> None:
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
    assert str(error) == (
        f'AWS cannot be reached for sts:GetCallerIdentity: Could not connect to the endpoint URL: "{url}/"; '
        "check the network and --region."
    )


def test_a_region_that_does_not_exist_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://ec2.us-esat-1.amazonaws.invalid")
    error = error_of(Aws("us-esat-1").call, "ec2", "DescribeVolumes")

    assert type(error) is AwsError
    assert str(error) == (
        "AWS cannot be reached for ec2:DescribeVolumes: Could not connect to the endpoint URL: "
        '"http://ec2.us-esat-1.amazonaws.invalid/"; check the network and --region.'
    )


def test_a_proxy_with_its_own_certificate_is_called_so(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    def untrusted(*_: object, **__: object) -> None:
        raise ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")

    monkeypatch.setattr("ssl.SSLContext.wrap_socket", untrusted)
    with nobody_answers() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url.replace("http", "https"))
        error = error_of(Aws("us-east-1").call, *WHO_AM_I)

    assert (type(error), error.code) == (AwsError, 4)
    assert str(error).startswith(
        "the TLS certificate for sts:GetCallerIdentity is not trusted: SSL validation failed for https:"
    )
    assert str(error).endswith("; set AWS_CA_BUNDLE to your proxy's certificate.")


def test_an_answer_that_does_not_come_leaves_it_open(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    monkeypatch.setattr("launch.aws.client.READ_TIMEOUT_S", 0.05)
    with nobody_answers() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        error = error_of(Aws("us-east-1").call, *WHO_AM_I)

    assert (type(error), error.code) == (NoAnswer, 4)
    assert str(error) == (
        "no answer to sts:GetCallerIdentity (Read timeout on endpoint URL): whether it took effect is unknown; "
        "check the network."
    )
    assert len(faults.slept) == 5


def test_an_answer_that_got_lost_is_asked_for_again(aws: Aws, faults: Faults) -> None:
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


def test_an_open_call_does_not_make_the_next_one_open(aws: Aws, faults: Faults) -> None:
    faults.on("GetCallerIdentity", lost()).on("DescribeVolumes", refused("SomethingNew", 400))
    first, second = error_of(aws.call, *WHO_AM_I), error_of(aws.call, "ec2", "DescribeVolumes")

    assert (type(first), type(second)) == (NoAnswer, AwsError)


def test_a_wrong_request_of_ours_keeps_its_traceback(aws: Aws) -> None:
    from botocore.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        aws.call("ec2", "DescribeVolumes", {"Volume": 1})


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


def test_a_listing_without_pages_is_read_at_once(aws: Aws) -> None:
    assert aws.pages("ec2", "DescribePlacementGroups", "PlacementGroups") == []


def test_a_page_that_fails_is_told_as_any_other_error(aws: Aws, faults: Faults) -> None:
    faults.on("DescribeVolumes", refused("UnauthorizedOperation", 403))
    error = error_of(aws.pages, "ec2", "DescribeVolumes", "Volumes")

    assert str(error).startswith("these credentials may not ec2:DescribeVolumes; ")


@pytest.mark.usefixtures("account")
def test_the_region_that_is_asked_for_goes_before_the_configured_one() -> None:
    there = Aws("eu-west-1")

    assert there.region == "eu-west-1"
    assert there.call("ec2", "DescribeSubnets")["Subnets"][0]["AvailabilityZone"].startswith("eu-west-1")


# ---- answers that are not AWS's


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("ec2", "DescribeSubnets"),
        ("sts", "GetCallerIdentity"),
        ("sagemaker", "ListTrainingJobs"),
        ("s3", "ListBuckets"),
    ],
)
def test_a_proxys_page_is_no_answer(account: Account, service: str, operation: str, status: int) -> None:
    """Most parsers of botocore's take it for an empty answer, and others end in their own words."""
    page = "\n<!DOCTYPE html><html><body>Sign in</body></html>"
    fault = Fault(lambda *_: (status, {"content-type": "text/html; charset=utf-8"}, page), False)
    with injected(Faults().on(operation, fault, nth=None)):
        error = error_of(account.aws().call, service, operation)

    assert isinstance(error, NoAnswer)
    assert str(error).startswith(f"{service}:{operation} was not answered by AWS but by something in between")


@pytest.mark.parametrize("service", ["ec2", "s3", "sagemaker"])
def test_a_plain_text_is_no_answer_either(account: Account, service: str) -> None:
    operation = {"ec2": "DescribeSubnets", "s3": "ListBuckets", "sagemaker": "ListTrainingJobs"}[service]
    fault = Fault(lambda *_: (500, {"content-type": "text/plain"}, "Internal Error"), False)
    with injected(Faults().on(operation, fault, nth=None)):
        error = error_of(account.aws().call, service, operation)

    assert isinstance(error, NoAnswer)
    assert "\n" not in str(error)


def test_a_page_in_place_of_an_answer_is_asked_past(account: Account) -> None:
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


def test_a_page_that_is_an_object_in_s3_is_an_answer(account: Account) -> None:
    page, aws = {"Bucket": account.bucket, "Key": "page.html"}, account.aws()
    aws.call("s3", "PutObject", {**page, "Body": b"<html>", "ContentType": "text/html"})

    assert aws.call("s3", "GetObject", page)["Body"].read() == b"<html>"
    assert aws.call("s3", "HeadObject", page)["ContentType"] == "text/html"
