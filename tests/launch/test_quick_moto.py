"""tests/launch/quick_moto.py changes how long moto takes, and nothing else."""

from unittest import mock

import pytest
from moto.core.serialize import ResponseSerializer

from tests.launch.ec2.account import Account
from tests.launch.ec2.world import Stage

MOTOS = ResponseSerializer.get_value


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("ec2", "DescribeInstances"),
        ("ec2", "DescribeVolumes"),
        ("ec2", "DescribeImages"),
        ("ec2", "DescribeNetworkInterfaces"),
        ("ec2", "DescribeSecurityGroups"),
        ("scheduler", "ListSchedules"),
        ("s3", "ListBuckets"),
    ],
)
def test_quick_answers_are_motos_own(service: str, operation: str) -> None:
    with Account.opened() as account:
        stage = Stage(account)
        stage.where = {"detach": True}
        stage.launch()
        assert ResponseSerializer.get_value is not MOTOS
        quick = account.aws().call(service, operation, {})
        with mock.patch.object(ResponseSerializer, "get_value", MOTOS):
            slow = account.aws().call(service, operation, {})
    quick.pop("ResponseMetadata"), slow.pop("ResponseMetadata")
    assert quick == slow
    assert any(quick.values())
