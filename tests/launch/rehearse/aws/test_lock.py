"""launch.rehearse.aws: requests to one AWS run one at a time, as moto's classes have no locks of their own."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.ec2.models import EC2Backend
from moto.sagemaker.responses import SageMakerResponse

from launch.rehearse.aws.access import replaced
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.ec2.moto_patches import patched as patched_ec2
from launch.rehearse.aws.sagemaker import rules as sagemaker_rules

TOGETHER_S = 0.5  # how long a request waits in the middle for another to come in: only without a lock one does


class Crossing:
    """A place in the middle of requests: `met` if two were there at the same time."""

    def __init__(self) -> None:
        self._barrier, self.met = threading.Barrier(2), False

    def pass_through(self) -> None:
        try:
            self._barrier.wait(TOGETHER_S)
            self.met = True
        except threading.BrokenBarrierError:
            self._barrier.reset()


def in_threads(*acts: Any) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    account = Ec2Account("us-east-1")
    with mock_aws(config={"core": {"mock_credentials": False}}), patched_ec2(account.rules):
        account.fill()
        client = boto3.client("ec2", "us-east-1")
        image = client.describe_images(Owners=["self", "amazon"])["Images"][0]["ImageId"]
        yield client, {"ImageId": image, "InstanceType": "g5.2xlarge", "MinCount": 1, "MaxCount": 1}


def test_requests_that_start_and_list_instances_do_not_cross(ec2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client, settings = ec2
    crossing = Crossing()
    listed = EC2Backend.all_instances

    def slowly(backend: EC2Backend, *args: Any, **named: Any) -> Any:
        crossing.pass_through()
        return listed(backend, *args, **named)

    monkeypatch.setattr(EC2Backend, "all_instances", slowly)
    in_threads(lambda: client.run_instances(**settings), lambda: client.describe_instances())

    assert not crossing.met


def test_every_replaced_method_runs_under_the_lock_of_its_rules() -> None:
    crossing = Crossing()

    def act(rules: Any, original: Any, response: Any) -> None:
        crossing.pass_through()

    with ExitStack() as stack:
        stack.enter_context(replaced(SageMakerResponse, "stop_training_job", act, sagemaker_rules.Rules()))
        stop: Any = SageMakerResponse.stop_training_job
        in_threads(*[lambda: stop(object())] * 2)

    assert not crossing.met
