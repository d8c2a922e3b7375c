"""Subnets from which nodes could not report: told before anything is spent, and left out where others can do."""

from dataclasses import replace

import pytest

from launch.aws.network import Exit
from launch.core.plan import Choice, Plan
from launch.ec2.facts import Facts
from launch.ec2.planner import Launch
from tests.launch.ec2.known import FACTS, plan
from trainer.config import TrainConfig

ENDPOINTS = frozenset({"s3", "logs", "ecr.api", "ecr.dkr"})
A, B = (subnet.id for subnet in FACTS.subnets)


def leading(first: Exit, second: Exit | None = None) -> Facts:
    """Facts in which the two subnets have these exits."""
    return replace(FACTS, exits={A: first, B: second or first})


def without_addresses(facts: Facts) -> Facts:
    return replace(facts, subnets=tuple(replace(subnet, gives_addresses=False) for subnet in facts.subnets))


def subnets_of(made: Plan[Launch]) -> list[str]:
    """Where nodes would be started, in order."""
    tries = [attempt for step in made.steps if isinstance(step, Choice) for attempt in step.tries]
    return [attempt.request.params["NetworkInterfaces"][0]["SubnetId"] for attempt in tries]


def test_a_subnet_with_a_way_out_is_no_problem() -> None:
    for way_out in (Exit("gateway"), Exit("other"), Exit("none", ENDPOINTS)):
        made = plan(leading(way_out))
        assert (made.problems, made.warnings) == ((), ())
        assert subnets_of(made) == [A, B]


def test_a_subnet_without_a_route_is_a_problem_before_anything_is_spent() -> None:
    (problem,) = plan(leading(Exit("none"))).problems
    assert str(problem).startswith(
        f"nodes could not reach ecr.api, ecr.dkr, logs, s3 from {A} in us-east-1a: it has no route to the internet"
    )
    assert problem.code == 4


def test_a_subnet_that_gives_no_public_addresses_is_a_problem_with_the_command_that_mends_it() -> None:
    (problem,) = plan(without_addresses(leading(Exit("gateway")))).problems
    assert f"aws ec2 modify-subnet-attribute --subnet-id {A} --map-public-ip-on-launch" in str(problem)
    assert not plan(without_addresses(leading(Exit("other")))).problems


def test_several_network_cards_without_a_nat_gateway_are_a_problem() -> None:
    """They were a warning; such nodes have no public address even in the default VPC."""
    kind = {"instance_type": ("p4d.24xlarge",)}
    (problem,) = plan(leading(Exit("gateway")), **kind).problems
    assert "several network cards, such as p4d.24xlarge with EFA" in str(problem)
    assert not plan(leading(Exit("other")), **kind).problems
    assert not plan(leading(Exit("gateway")), **kind, efa=False).problems
    assert not plan(leading(Exit("gateway")), **kind, nodes=1).problems


def test_a_mute_subnet_is_left_out_with_a_warning_where_another_one_can_do() -> None:
    made = plan(leading(Exit("none"), Exit("gateway")))
    assert not made.problems
    assert subnets_of(made) == [B]
    assert [text.partition(":")[0] for text in made.warnings] == ["left out"]


@pytest.mark.parametrize(
    ("way_out", "remedy"),
    [
        (Exit("gateway", vpc="vpc-1", shut="dns"), "modify-vpc-attribute --vpc-id vpc-1 --enable-dns-support"),
        (Exit("none", frozenset({"s3"}), ENDPOINTS - {"s3"}, "vpc-1"), "--vpc-id vpc-1 --enable-dns-hostnames"),
        (Exit("other", acl="acl-1", shut="out"), "acl-1 lets no HTTPS out; run aws ec2 create-network-acl-entry"),
        (
            Exit("other", acl="acl-1", shut="in"),
            "acl-1 lets no answers in, which come to ports 32768 to 60999; run aws",
        ),
    ],
)
def test_a_network_that_stops_calls_is_a_problem_with_the_command_that_mends_it(way_out: Exit, remedy: str) -> None:
    """Such nodes were started, mute, and ended themselves after their boot script's waiting."""
    (problem,) = plan(leading(way_out)).problems
    assert f"from {A} in us-east-1a: " in str(problem)
    assert remedy in str(problem)


def test_endpoints_are_not_enough_for_an_image_of_another_registry_or_for_a_secret() -> None:
    behind = leading(Exit("none", ENDPOINTS))
    (problem,) = plan(replace(behind, image="ghcr.io/me/trainer@sha256:" + "0" * 64)).problems
    assert "could not reach internet from" in str(problem)
    (problem,) = plan(behind, secret=("KEY=ssm:/ddp-toolkit/key",)).problems
    assert "could not reach ssm from" in str(problem)


def test_routes_that_could_not_be_looked_up_prevent_nothing() -> None:
    assert not plan(replace(FACTS, exits={})).problems


def test_data_from_the_internet_and_an_image_of_another_region_need_a_way_there() -> None:
    """Endpoints were taken for enough, and paid nodes failed."""
    endpoints = leading(Exit("none", ENDPOINTS))
    downloading = TrainConfig(dataset="cifar10", model="resnet18", batch_size=256)
    (problem,) = plan(endpoints, downloading).problems
    assert f"nodes could not reach internet from {A}" in str(problem)
    assert not plan(endpoints, downloading, data_s3="s3://aws-ddp-toolkit-data/cifar10").problems
    far = replace(endpoints, image=str(FACTS.image).replace("us-east-1", "eu-west-1"))
    assert f"nodes could not reach internet from {A}" in str(plan(far).problems[0])
