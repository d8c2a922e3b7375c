"""EC2's own answer on whether it would carry out the launch's requests: each of those that can be tried, with DryRun.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/CommonParameters.html: DryRunOperation means yes, and
UnauthorizedOperation no.  Nothing is made.  A request on something that the launch makes first cannot be tried.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launch.aws.examination.case import Verdict, missing, ok, split, unknown
from launch.aws.refusals import DENIED
from launch.core.errors import AwsError
from launch.core.steps import FromAnswer, Request
from launch.ec2 import machines, requests
from launch.ec2.examination import shared
from launch.ec2.examination.shared import Ec2Case
from launch.ec2.requests import Cluster
from launch.ec2.volume_init import volume_init

YES = "DryRunOperation"
FIX = "see which permissions are missing above; infra/iam/launcher.json grants them"


@dataclass(frozen=True)
class Trial:
    """request: as the launch would make it, without what an earlier request would have made."""

    request: Request
    lacks_group: bool = False


def dry_run(case: Ec2Case) -> Iterator[Verdict]:
    cluster = shared.cluster(case, shared.facts(case))
    for trial in trials(case, cluster):
        yield _tried(case, trial)


def trials(case: Ec2Case, cluster: Cluster) -> Iterator[Trial]:
    """The requests of a launch that make something."""
    subnet, instance, options = shared.subnets(case)[0], case.resolved.instances[0], cluster.resolved.options
    if options.security_group is None:
        yield Trial(requests.security_group(cluster, subnet.vpc)[0])
    if machines.is_placed(cluster.resolved):
        yield Trial(requests.placement_group(cluster))
    if cluster.resolved.data_volume == "multi-attach":
        yield Trial(machines.shared_volume(cluster, subnet.zone, 1))
    fill = volume_init(cluster.resolved, instance, cluster.snapshot, cluster.prices)
    yield _instances(machines.run_instances(cluster, instance, subnet, options.nodes, 1, fill))


def _instances(request: Request) -> Trial:
    """RunInstances without the groups that the launch makes before it; EC2 then takes the VPC's default group."""
    params = {name: value for name, value in request.params.items() if name not in ("Placement", "ClientToken")}
    lacks_group = any(isinstance(group, FromAnswer) for one in params["NetworkInterfaces"] for group in one["Groups"])
    if lacks_group:
        params["NetworkInterfaces"] = [_without_groups(one) for one in params["NetworkInterfaces"]]
    return Trial(Request(request.service, request.operation, params, request.why), lacks_group)


def _without_groups(interface: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in interface.items() if name != "Groups"}


def _tried(case: Ec2Case, trial: Trial) -> Verdict:
    request = trial.request
    try:
        case.aws.call(request.service, request.operation, {**request.params, "DryRun": True})
    except AwsError as error:
        return _judged(error, trial)
    return unknown(f"EC2 did not say whether it would accept {request.operation}")


def _judged(error: AwsError, trial: Trial) -> Verdict:
    operation = trial.request.operation
    if error.aws_code == YES:
        return ok(f"EC2 would accept {operation}")
    if error.aws_code not in DENIED:
        text, remedy = split(str(error))
        return missing(f"EC2 refuses {operation}: {text}", remedy)
    # IAM is asked about each resource in turn.  Ours would be a group with the job's tag.
    if trial.lacks_group and re.search(r":security-group/", str(error.__cause__)):
        return unknown(f"{operation}: refused only for the default security group, which no job uses")
    return missing(f"EC2 refuses {operation}: {str(error).partition(';')[0]}", FIX)
