"""Job + facts -> the plan: every request in order, the price, and what speaks against it.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launch.core.errors import AwsError
from launch.core.job import Job
from launch.core.plan import Choice, FromAnswer, Plan, Request, Step, Try
from launch.ec2 import explain, machines, requests
from launch.ec2.checks import Resolved
from launch.ec2.describe import describe
from launch.ec2.facts import Facts, Subnet
from launch.ec2.names import SCHEDULE_GROUP, group_name
from launch.ec2.options import Ec2Options
from launch.ec2.requests import Cluster
from launch.ec2.roster import members_of_plan
from trainer.errors import TrainerError

# RunInstances' errors after which another zone may do, and after which only another type may.
NO_CAPACITY = {
    "InsufficientInstanceCapacity": "no capacity",
    "InsufficientHostCapacity": "no capacity",
    "InsufficientReservedInstanceCapacity": "reservation full",
    "ReservationCapacityExceeded": "reservation full",
    "Unsupported": "not supported in this zone",
    "InsufficientFreeAddressesInSubnet": "no addresses left in the subnet",
    "InsufficientVolumeCapacity": "no room for the volumes",
    "SpotMaxPriceTooLow": "spot price over the limit",
}
NO_QUOTA = {
    "VcpuLimitExceeded": "vCPU quota used up",
    "InstanceLimitExceeded": "instance quota used up",
    "MaxSpotInstanceCountExceeded": "spot quota used up",
}


@dataclass(frozen=True)
class Launch:
    """What carrying out a plan needs beyond its requests.  missing: nodes to start, 0 if all are there, which are then
    of this generation.
    """

    job: Job[Ec2Options]
    cluster: Cluster
    missing: int
    generation: int


def plan(job: Job[Ec2Options], resolved: Resolved, name: str, facts: Facts) -> Plan:
    """The plan for `job`, called `name`.  Raises SettingsError; what AWS is short of is among its problems."""
    cluster, problems = describe(job, resolved, name, facts)
    living = facts.fleet.living
    missing = max(0, cluster.nodes - len(living))
    # EC2 forgets ended nodes after an hour, but not the tokens of the requests that made them.
    generation = max([facts.last_generation, *(node.generation for node in facts.fleet.nodes)]) + 1
    tries = _tries(cluster, facts, missing, generation)
    if missing and not tries:
        problems = (*problems, _nowhere(resolved, facts))
    # Nodes that run have everything that comes before them.
    steps = _before(cluster, facts) if missing else []
    if missing and tries:
        steps.append(_choice(tries, missing))
    if resolved.data_volume == "multi-attach" and not [v for v in facts.fleet.kind("volume") if v.volume_type == "io2"]:
        there = [node.zone for node in facts.fleet.living]
        zone = there[0] if there else FromAnswer("nodes", "Instances[0].Placement.AvailabilityZone")
        steps += machines.shared_volume(cluster, zone)
    gib = cluster.snapshot.gib if cluster.snapshot else 0
    return Plan(
        title=f"{cluster.nodes} x {' or '.join(resolved.options.instance_type)} on EC2, job {name}",
        facts=explain.facts_rows(cluster, facts),
        steps=tuple(steps),
        price=explain.price_rows(job.train, resolved, facts, gib),
        warnings=explain.warnings(cluster, facts),
        problems=(*facts.problems, *problems),
        later=_later(cluster),
        inner=Launch(job, cluster, missing, generation),
    )


def _nowhere(resolved: Resolved, facts: Facts) -> TrainerError:
    zones = ", ".join(subnet.zone for subnet in facts.subnets) or "no zone"
    return AwsError(
        f"{' or '.join(resolved.options.instance_type)} is not offered where there are subnets ({zones}); give another "
        "--instance-type, --zones or --region."
    )


def _tries(cluster: Cluster, facts: Facts, count: int, generation: int) -> tuple[Try, ...]:
    """Zone after zone of the first type, then of the next; near living nodes and a volume for all, if there are any."""
    living, reservation = facts.fleet.living, facts.reservation
    shared = [volume.zone for volume in facts.fleet.kind("volume") if volume.volume_type == "io2"]
    subnets = facts.subnets or (Subnet("<subnet>", "<zone>", "<vpc>"),)
    if living:
        subnets = tuple(s for s in subnets if s.id == living[0].subnet) or subnets
    if shared:
        subnets = tuple(s for s in subnets if s.zone in shared)
    if reservation is not None:
        subnets = tuple(s for s in subnets if s.zone == reservation.zone)
    market = "spot" if cluster.resolved.options.spot else "on demand"
    return tuple(
        Try(
            machines.run_instances(cluster, instance, subnet, count, generation),
            (instance.name, subnet.zone, market),
            instance.name,
        )
        for instance in cluster.resolved.instances
        for subnet in subnets
        if not facts.offered or not facts.subnets or subnet.zone in facts.offered.get(instance.name, ())
    )


def _choice(tries: Sequence[Try], count: int) -> Choice:
    return Choice(
        tuple(tries),
        f"start {count} node{'s' if count > 1 else ''}, all or none, where there is room first",
        ("type", "zone", "market", "answer"),
        next_after=NO_CAPACITY,
        next_kind_after=NO_QUOTA,
        name="nodes",
    )


def _before(cluster: Cluster, facts: Facts) -> list[Step]:
    """Everything that must be there before the first machine that costs money."""
    resolved, fleet = cluster.resolved, facts.fleet
    steps: list[Step] = [requests.put_spec(cluster), *requests.log_group(retention=not facts.has_log_group)]
    steps += requests.time_limit(cluster, exists=bool(fleet.kind("schedule")))
    if resolved.options.security_group is None:
        if isinstance(cluster.security_group, FromAnswer):
            vpc = facts.subnets[0].vpc if facts.subnets else "<default VPC>"
            steps += requests.security_group(cluster, vpc)
        else:
            steps += requests.security_rules(cluster.security_group)
    if machines.is_placed(resolved) and not fleet.kind("placement-group"):
        steps.append(requests.placement_group(cluster))
    return steps


def _later(cluster: Cluster) -> tuple[tuple[str, tuple[Request, ...]], ...]:
    """What follows once the nodes run, shown with texts for what their start will tell."""
    told = requests.put_cluster(cluster.folder, members_of_plan(cluster))
    run: list[Request] = [told]
    if cluster.resolved.data_volume == "multi-attach":
        run = [
            machines.attach(FromAnswer("data volume", "VolumeId"), "<each node>"),
            machines.end_with("<each node>"),
            told,
        ]
    end = [Request("ec2", "TerminateInstances", {"InstanceIds": ["<all nodes>"]}, "end the nodes, and their volumes")]
    name = {"GroupName": group_name(cluster.job)}
    if isinstance(cluster.security_group, FromAnswer) or cluster.resolved.options.security_group is None:
        end.append(Request("ec2", "DeleteSecurityGroup", {"GroupId": str(cluster.security_group)}, "its group"))
    if machines.is_placed(cluster.resolved):
        end.append(Request("ec2", "DeletePlacementGroup", name, "its placement group"))
    limit = {"GroupName": SCHEDULE_GROUP, "Name": group_name(cluster.job)}
    end.append(Request("scheduler", "DeleteSchedule", limit, "and the time limit"))
    return (("as soon as the nodes are started:", tuple(run)), ("at the end, whatever happened:", tuple(end)))


def inner(plan: Plan) -> Launch:
    """What plan() left for whoever carries it out."""
    launch: Any = plan.inner
    assert isinstance(launch, Launch)
    return launch
