"""Subnets from which nodes could not report: reported before anything is spent, and left out where there are others."""

from dataclasses import replace
from typing import Any

import pytest

from launch.aws.network import Exit
from launch.core.plan import Choice
from launch.ec2.facts import Facts
from tests.launch.ec2.known import FACTS, plan
from trainer.config import TrainConfig

ENDPOINTS = frozenset({"s3", "logs", "ecr.api", "ecr.dkr"})
A, B = (subnet.id for subnet in FACTS.subnets)


def leading(first: Exit, second: Exit | None = None) -> Facts:
    """Facts in which the two subnets have these exits."""
    return replace(FACTS, exits={A: first, B: second or first})


def without_addresses(facts: Facts) -> Facts:
    return replace(facts, subnets=tuple(replace(subnet, gives_addresses=False) for subnet in facts.subnets))


P4D = {"instance_type": ("p4d.24xlarge",)}
DOWNLOADING = {"train": TrainConfig(dataset="cifar10", model="resnet18", batch_size=256)}
BEHIND = leading(Exit("none", ENDPOINTS))


@pytest.mark.parametrize(
    ("facts", "where", "remedy"),
    [
        (leading(Exit("none")), {}, "could not reach ecr.api, ecr.dkr, logs, s3"),
        (without_addresses(leading(Exit("gateway"))), {}, f"--subnet-id {A} --map-public-ip-on-launch"),
        # Such nodes have no public address even in the default VPC.
        (leading(Exit("gateway")), P4D, "several network cards"),
        (leading(Exit("gateway", vpc="vpc-1", shut="dns")), {}, "--vpc-id vpc-1 --enable-dns-support"),
        (leading(Exit("none", frozenset({"s3"}), ENDPOINTS - {"s3"}, "vpc-1")), {}, "--enable-dns-hostnames"),
        (leading(Exit("other", acl="acl-1", shut="out")), {}, "acl-1 lets no HTTPS out"),
        (leading(Exit("other", acl="acl-1", shut="in")), {}, "acl-1 lets no answers in"),
        # Endpoints are not enough for these.
        (replace(BEHIND, image="ghcr.io/me/trainer@sha256:" + "0" * 64), {}, "could not reach internet"),
        (replace(BEHIND, image=str(FACTS.image).replace("us-east-1", "eu-west-1")), {}, "could not reach internet"),
        (BEHIND, {"secret": ("KEY=ssm:/ddp-toolkit/key",)}, "could not reach ssm"),
        (BEHIND, DOWNLOADING, "could not reach internet"),
    ],
)
def test_a_subnet_from_which_nodes_could_not_report_is_a_problem_with_its_remedy(
    facts: Facts, where: dict[str, Any], remedy: str
) -> None:
    """Such nodes were started, mute, and ended themselves after their boot script's waiting."""
    (problem,) = plan(facts, **where).problems
    assert problem.code == 4
    assert A in str(problem)
    assert remedy in str(problem)


@pytest.mark.parametrize(
    ("facts", "where"),
    [
        *((leading(route), {}) for route in (Exit("gateway"), Exit("other"), Exit("none", ENDPOINTS))),
        (leading(Exit("other")), P4D),
        (leading(Exit("gateway")), {**P4D, "nodes": 1}),
        (replace(FACTS, exits={}), {}),  # it could not be looked up
    ],
)
def test_a_subnet_with_a_way_out_is_no_problem(facts: Facts, where: dict[str, Any]) -> None:
    assert not plan(facts, **where).problems


def test_a_mute_subnet_is_left_out_with_a_warning_where_another_one_can_do() -> None:
    made = plan(leading(Exit("none"), Exit("gateway")))
    assert not made.problems
    tries = [attempt for step in made.steps if isinstance(step, Choice) for attempt in step.tries]
    assert [attempt.request.params["NetworkInterfaces"][0]["SubnetId"] for attempt in tries] == [B]
    assert len(made.warnings) == 1


def test_behind_a_proxy_its_port_is_opened_and_what_has_an_endpoint_is_reached_without_it() -> None:
    """https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-proxy.html"""
    first, second = (Exit("none", frozenset({"s3", "ecr.api", other}), cidr="10.0.0.0/16") for other in ("logs", "sts"))
    made = plan(leading(first, second), proxy="http://proxy.corp:3128")
    assert not made.problems

    (egress,) = [request for request in made.requests if request.operation == "AuthorizeSecurityGroupEgress"]
    assert [rule["ToPort"] for rule in egress.params["IpPermissions"] if "ToPort" in rule] == [443, 3128]
    tries = [attempt for step in made.steps if isinstance(step, Choice) for attempt in step.tries]
    script = tries[0].request.params["UserData"]
    hosts = "10.0.0.0/16,api.ecr.us-east-1.amazonaws.com,s3.us-east-1.amazonaws.com"
    assert "\nPROXY=http://proxy.corp:3128\n" in script
    assert f"\nDIRECT=localhost,127.0.0.1,169.254.169.254,.internal,{hosts}\n" in script
