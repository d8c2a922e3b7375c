"""Least privilege of launch.data publish --by instance: of who starts the instance, and of the instance itself."""

import pytest

from launch.rehearse.aws.iam.needs import AccountView, needs
from launch.rehearse.aws.iam.policies import Need, actions, allows, policy
from tests.launch.faults import Request
from tests.launch.privilege.enforced import idle
from tests.launch.privilege.publishing import by_instances

OURS = {"aws-ddp-toolkit:dataset": "photos", "aws-ddp-toolkit:digest": "0", "aws-ddp-toolkit:blocks": "0"}
ROLE = "arn:aws:iam::123456789012:role/aws-ddp-toolkit-publisher"
VIEW = AccountView("123456789012", "us-east-1", lambda name: OURS if name == "snap-ours" else {}, lambda name: [ROLE])


def test_who_starts_it_needs_these_policies_and_the_instance_its_own_alone() -> None:
    mine, its = by_instances()
    assert (mine.refused, its.refused) == ([], [])
    assert len(its.granted) > 20


def test_every_grant_of_the_instance_is_needed() -> None:
    _, its = by_instances()
    # Asked for each training job that runs; here there is none.
    assert actions("publisher") - {need.action for need in its.granted} == {"sagemaker:DescribeTrainingJob"}
    assert idle("publisher", its.granted) == set()


@pytest.mark.parametrize("who", ["data", "launcher"])
def test_it_takes_both_policies_to_start_one(who: str) -> None:
    """Who launches jobs cannot change what they read, and who publishes data starts nothing with that alone."""
    request = Request("ec2", "RunInstances", {
        "MinCount": 1, "MaxCount": 1, "ImageId": "ami-1", "IamInstanceProfile": {"Name": "aws-ddp-toolkit-publisher"},
    })  # fmt: skip
    assert not all(allows([policy(who)], need) for need in needs(request, VIEW))


def test_the_role_is_handed_to_instances_only() -> None:
    for service, may in (("ec2", True), ("lambda", False), ("ecs-tasks", False)):
        need = Need("iam:PassRole", ROLE, {"iam:PassedToService": f"{service}.amazonaws.com"})
        assert allows([policy("data")], need) is may
        assert not allows([policy("launcher")], need)
