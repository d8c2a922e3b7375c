"""An AWS for the launchers' tests, and nothing of the developer's own: no credentials, no settings, no network."""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from launch.aws.client import Aws
    from tests.launch.ec2.account import Account
    from tests.launch.faults import Faults


@pytest.fixture(autouse=True)
def nobodys_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that no AWS knows, and a home without settings."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    ours = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in ours.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True, scope="session")
def botocores_models_are_read_once() -> Iterator[None]:
    """They take longer to read than most tests."""
    from tests.launch import loader

    with loader.shared():
        yield


@pytest.fixture
def account() -> Iterator["Account"]:
    """An AWS account that is set up for launches."""
    from tests.launch.ec2.account import Account

    with Account.opened() as opened:
        yield opened


@pytest.fixture
def aws(account: "Account") -> "Aws":
    """A launcher's way into the account."""
    return account.aws()


@pytest.fixture
def faults(account: "Account") -> Iterator["Faults"]:
    """Faults on the way to the account; none until a test asks for some."""
    from tests.launch.faults import Faults, injected

    with injected(Faults()) as active:
        yield active


@pytest.fixture
def put_lines(aws: "Aws") -> Callable[..., None]:
    """What CloudWatch gets of a machine: put_lines(group, stream, (milliseconds, "epoch 1"))."""
    groups, known = set[str](), set[str]()

    def put_lines(group: str, stream: str, *events: tuple[int, str]) -> None:
        if group not in groups:
            aws.call("logs", "CreateLogGroup", {"logGroupName": group})
            groups.add(group)
        if stream not in known:
            aws.call("logs", "CreateLogStream", {"logGroupName": group, "logStreamName": stream})
            known.add(stream)
        lines = [{"timestamp": at, "message": text} for at, text in events]
        aws.call("logs", "PutLogEvents", {"logGroupName": group, "logStreamName": stream, "logEvents": lines})

    return put_lines
