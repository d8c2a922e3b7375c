"""Look-ups that several checks share, each made once."""

from collections.abc import Mapping

from launch.aws.examination.case import NAME, Case
from launch.aws.instances.facts import Ami, Subnet, find_exits, find_subnets
from launch.aws.network import Exit
from launch.ec2 import lookup
from launch.ec2.checks import Resolved
from launch.ec2.describe import describe
from launch.ec2.facts import Facts, Snapshot
from launch.ec2.requests import Cluster

Ec2Case = Case[Resolved]


def subnets(case: Ec2Case) -> tuple[Subnet, ...]:
    options = case.resolved.options
    return case.once("subnets", lambda: find_subnets(case.aws, options.subnet, options.zones))


def ami(case: Ec2Case) -> Ami:
    return case.once("AMI", lambda: lookup.find_ami(case.aws, case.resolved.options.ami))


def image(case: Ec2Case) -> str:
    """The URI of the container, with its digest where it is in the account's own registry."""
    return case.once(
        "image", lambda: lookup.find_image_or_aws(case.aws, case.resolved, case.account, case.region, case.now.date())
    )


def snapshot(case: Ec2Case) -> Snapshot | None:
    dataset = case.job.train.dataset
    return case.once("snapshot", lambda: lookup.find_snapshot(case.aws, case.resolved, None, dataset))


def exits(case: Ec2Case) -> Mapping[str, Exit]:
    """How nodes leave each subnet, by its id."""
    return case.once("routes", lambda: find_exits(case.aws, subnets(case)))


def facts(case: Ec2Case) -> Facts:
    """The facts that a launch's requests need.  Raises TrainerError if a look-up fails."""
    return Facts(
        region=case.region,
        account=case.account,
        owner=case.identity.user_id,
        subnets=subnets(case),
        exits=exits(case),
        ami=ami(case),
        image=image(case),
        snapshot=snapshot(case),
        scheduler_role=f"arn:aws:iam::{case.account}:role/{case.resolved.options.scheduler_role}",
        now=case.now,
    )


def cluster(case: Ec2Case, known: Facts) -> Cluster:
    """The cluster from which EC2's requests are made."""
    return describe(case.job, case.resolved, NAME, known)[0]
