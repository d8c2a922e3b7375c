"""Job + facts -> the plan: every request in order, quotes and problems.  Pure."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from launch.aws import upload
from launch.aws.instances.facts import Subnet
from launch.aws.instances.inventory import INTERNAL_ERROR, NO_MACHINE, NO_START, Node
from launch.aws.instances.requests import NO_CAPACITY, deletion
from launch.aws.names import group_name
from launch.core.errors import AwsError
from launch.core.job import Job
from launch.core.perform import REMEDY
from launch.core.plan import Choice, FromAnswer, Plan, Request, Step, Try
from launch.core.quote import ended_early, misfits
from launch.ec2 import explain, requests
from launch.ec2.checks import Resolved
from launch.ec2.describe import describe, unreachable, why_unreachable
from launch.ec2.facts import Facts
from launch.ec2.job_folder import planned_cluster_file
from launch.ec2.options import Ec2Options
from launch.ec2.queue import submission
from launch.ec2.requests import Cluster, placement_name
from launch.ec2.volume_init import UNSET, volume_init
from launch.ec2.warm import take_over
from trainer.errors import TrainerError

# RunInstances' errors after which only another type may work.
NO_QUOTA = {
    "PendingVerification": "AWS is still verifying the account for this region",
    "VcpuLimitExceeded": "vCPU quota used up",
    "InstanceLimitExceeded": "instance quota used up",
    "MaxSpotInstanceCountExceeded": "spot quota used up",
}
# RunInstances' errors if the initialization rate of volumes cannot be met; AWS documents the failure, but no code.
NO_FILLING = {
    "InsufficientVolumeCapacity": "no capacity to fill volumes; trying without",
    "nitialization": "AWS cannot fill the volumes at that rate; trying without",
    "VolumeLimitExceeded": "quota of volumes used up; trying without filling them",
}
# For this long a zone where nodes ended at their start is not tried again for their type.
EXHAUSTED_FOR = timedelta(minutes=15)
# An internal error may concern one machine only, and also ends nodes after a while: after so many the zone is excluded.
INTERNAL_ERRORS = 3


@dataclass(frozen=True)
class Launch:
    """What performing a plan needs in addition to its requests."""

    job: Job[Ec2Options]
    cluster: Cluster
    missing: int  # number of nodes to start
    generation: int  # of those nodes
    save_spec: Request | None = None  # writes job.json; None if it is up to date


def plan(job: Job[Ec2Options], resolved: Resolved, name: str, facts: Facts) -> Plan[Launch]:
    """The plan for `job`, called `name`.  Anything missing in the account is among its problems."""
    cluster, problems = describe(job, resolved, name, facts)
    missing = max(0, cluster.nodes - len(facts.fleet.living))
    # EC2 forgets terminated nodes after an hour, but not the client tokens of their requests.
    generation = 1 + max([facts.last_generation, *(node.generation for node in facts.fleet.nodes)])
    save_spec = None if requests.is_saved(cluster, facts.spec) else requests.put_spec(cluster, facts.etag)
    steps, group = list[Step](), _placement(cluster, facts, generation)
    if missing:  # running nodes have all prerequisites
        steps += _before(cluster, facts, save_spec, group)
        nodes = _nodes(cluster, facts, missing, generation, group)
        steps += nodes
        problems = problems if nodes else (*problems, _no_subnet(cluster, facts))
    steps += _shared_volume(cluster, facts, generation if missing else 0)
    if resolved.options.queue is not None:
        steps = _into_queue(cluster, facts)
    quotes = explain.quotes(job.train, cluster, facts)
    return Plan(
        title=_title(cluster, facts, missing),
        payload=Launch(job, cluster, missing, generation, save_spec),
        facts=explain.plan_facts(cluster, facts),
        steps=tuple(steps),
        quotes=quotes,
        not_counted=explain.not_counted(cluster),
        warnings=(*explain.warnings(cluster, facts), *ended_early(quotes)),
        problems=(*facts.problems, *problems, *(misfits(quotes, anyway=job.where.anyway) if missing else ())),
        later=_later(cluster, group),
    )


def _shared_volume(cluster: Cluster, facts: Facts, generation: int) -> list[Step]:
    """The request for the volume that all nodes share.  generation: of the missing nodes; 0 if none is."""
    if cluster.resolved.data_volume != "multi-attach" or facts.fleet.shared_volumes:
        return []
    newest = generation or max(node.generation for node in facts.fleet.living)
    return [requests.shared_volume(cluster, _zone(facts), newest)]


def _nodes(cluster: Cluster, facts: Facts, missing: int, generation: int, group: str) -> list[Step]:
    """The requests for the nodes; none if there is no place for them."""
    if cluster.warm is not None:
        return [*take_over(cluster, cluster.warm)]
    tries = _tries(cluster, facts, missing, generation, group)
    return [_choice(tries, missing)] if tries else []


# How long a job may wait in a queue: Batch ends its launcher after 14 days.
MOST_IN_LINE = timedelta(days=14)


def _into_queue(cluster: Cluster, facts: Facts) -> list[Step]:
    """The requests that put the job into its queue; none if its launcher is there."""
    if facts.queued is not None:
        return []
    # A source's key has the month in which the job begins, and only this machine has the source.
    months = {when.strftime("%Y-%m"): when for when in (cluster.started, cluster.started + MOST_IN_LINE)}
    later = [replace(cluster, started=when, toolkit=None) for when in months.values()]
    sources = {cluster.source_key: upload for cluster in later for upload in _uploads(cluster, facts)}
    return [*sources.values(), *submission(cluster, facts)]


def _title(cluster: Cluster, facts: Facts, missing: int) -> str:
    title = f"{cluster.nodes} x {' or '.join(cluster.resolved.options.instance_type)} on EC2, job {cluster.job}"
    if facts.queued is not None:
        return f"{title}: it {facts.queued.in_words}; --new starts another"
    if cluster.resolved.options.queue is not None:
        return f"{title}, through queue {cluster.resolved.options.queue}"
    if cluster.warm is not None:
        return f"{title}, on {cluster.nodes} warm nodes of {cluster.warm.job}"
    return title if missing else f"{title}: it runs already, and is joined; --new starts another"


def _zone(facts: Facts) -> str | FromAnswer:
    """The zone of the nodes."""
    living = facts.fleet.living
    return living[0].zone if living else FromAnswer("nodes", "Instances[0].Placement.AvailabilityZone")


def _no_subnet(cluster: Cluster, facts: Facts) -> TrainerError:
    """Why there is no subnet to start nodes in."""
    if exhausted := _exhausted(facts):
        names = ", ".join(f"{kind} in {zone}" for kind, zone in sorted(exhausted))
        return AwsError(f"no capacity: EC2 ended nodes as they started ({names}). {REMEDY}", "NothingLeftToTry")
    if sentences := unreachable(cluster, facts):
        return AwsError(sentences[0])
    resolved = cluster.resolved
    zones = ", ".join(subnet.zone for subnet in facts.subnets) or "no zone"
    return AwsError(
        f"{' or '.join(resolved.options.instance_type)} is not offered in the zones of the subnets ({zones}); choose "
        "another --instance-type, --zones or --region."
    )


def _placement(cluster: Cluster, facts: Facts, generation: int) -> str:
    """The placement group of the missing nodes: that of the living ones, or a new one; empty for none."""
    if cluster.warm is not None or not requests.is_placed(cluster.resolved):
        return ""
    groups = [group.id for group in facts.fleet.kind("placement-group")] if facts.fleet.living else []
    if not groups:
        return placement_name(cluster.job, generation)
    return max(groups, key=_number_of)


def _number_of(group: str) -> int:
    """The generation in a placement group's name; 0 if it has none."""
    found = re.search(r"-(\d+)$", group)
    return int(found[1]) if found else 0


def _tries(cluster: Cluster, facts: Facts, count: int, generation: int, group: str) -> tuple[Try, ...]:
    """All zones for the first type, then all zones for the next."""
    subnets = _candidates(facts)
    market = explain.market(cluster.resolved.options)
    exhausted, may_fill = _exhausted(facts), not _could_not_fill(facts)
    tries = []
    for instance in cluster.resolved.instances:
        for subnet in subnets:
            if not _may_offer(facts, instance.name, subnet) or why_unreachable(cluster, facts, instance, subnet):
                continue
            if (instance.name, subnet.zone) in exhausted:
                continue
            fill = volume_init(cluster.resolved, instance, cluster.snapshot, cluster.prices)
            ways = [fill, UNSET] if fill.rate and may_fill else [UNSET]
            request, *lesser = (
                requests.run_instances(cluster, instance, subnet, count, generation, way, group) for way in ways
            )
            label = (instance.name, subnet.zone, market)
            tries.append(Try(request, label, instance.name, lesser[0] if lesser else None))
    return tuple(tries)


def _ended_at_once(facts: Facts) -> list[Node]:
    """The nodes that EC2 has recently terminated while they started."""
    recent = [node for node in facts.fleet.nodes if not node.lives and facts.now - node.launched_at < EXHAUSTED_FOR]
    return [node for node in recent if node.reason.startswith(NO_START)]


def _exhausted(facts: Facts) -> set[tuple[str, str]]:
    """The types and zones where EC2 accepted a request and then had no capacity."""
    exhausted = set[tuple[str, str]]()
    failed = defaultdict[tuple[str, str], set[int]](set)  # type and zone -> generations
    for node in _ended_at_once(facts):
        place = (node.type, node.zone)
        if node.reason.startswith(NO_MACHINE):
            exhausted.add(place)
        elif node.reason.startswith(INTERNAL_ERROR):
            failed[place].add(node.generation)
    return exhausted | {place for place, starts in failed.items() if len(starts) >= INTERNAL_ERRORS}


def _could_not_fill(facts: Facts) -> bool:
    """Whether volumes failed after EC2 had accepted the request for their nodes."""
    return any(not node.reason.startswith((NO_MACHINE, INTERNAL_ERROR)) for node in _ended_at_once(facts))


def _candidates(facts: Facts) -> tuple[Subnet, ...]:
    """The subnets in which nodes may start: in the zone of living nodes, a shared volume or a reservation, if any.

    Those with the best spot placement scores come first; zones without one are not among AWS's ten best.
    """
    subnets = facts.subnets or (Subnet("<subnet>", "<zone>", "<vpc>"),)
    if living := facts.fleet.living:
        subnets = tuple(subnet for subnet in subnets if subnet.id == living[0].subnet) or subnets
    if shared := facts.fleet.shared_volumes:
        subnets = _in_zones(subnets, {volume.zone for volume in shared})
    if facts.reservation is not None:
        subnets = _in_zones(subnets, {facts.reservation.zone})
    return tuple(sorted(subnets, key=lambda subnet: -facts.spot_scores.get(subnet.zone, 0)))


def _in_zones(subnets: Sequence[Subnet], zones: Collection[str]) -> tuple[Subnet, ...]:
    return tuple(subnet for subnet in subnets if subnet.zone in zones)


def _may_offer(facts: Facts, instance_type: str, subnet: Subnet) -> bool:
    """Whether the subnet's zone offers the type, or that is unknown."""
    if not facts.offered or not facts.subnets:
        return True
    return subnet.zone in facts.offered.get(instance_type, ())


def _choice(tries: Sequence[Try], count: int) -> Choice:
    return Choice(
        tuple(tries),
        f"start {count} node{'s' if count > 1 else ''}, all or none, with the first of these that has capacity",
        ("type", "zone", "market", "answer"),
        next_after=NO_CAPACITY,
        next_kind_after=NO_QUOTA,
        name="nodes",
        lesser_after=NO_FILLING,
    )


def _before(cluster: Cluster, facts: Facts, save_spec: Request | None, group: str) -> list[Step]:
    """The requests before the first node, which is billed.  group: the placement group, if any."""
    resolved, fleet = cluster.resolved, facts.fleet
    steps: list[Step] = [*_uploads(cluster, facts), *([save_spec] if save_spec else [])]
    steps += requests.log_group(retention=not facts.has_log_group)
    steps += requests.time_limit(cluster, exists=bool(fleet.kind("schedule")))
    if cluster.warm is not None:  # with all that is theirs
        return steps
    if resolved.options.security_group is None:
        if isinstance(cluster.security_group, FromAnswer):
            vpc = facts.subnets[0].vpc if facts.subnets else "<default VPC>"
            steps += requests.security_group(cluster, vpc, facts.dns)
        else:
            steps += requests.security_rules(cluster.security_group, facts.dns, resolved.options.proxy)
    if group and group not in [known.id for known in fleet.kind("placement-group")]:
        steps.append(requests.placement_group(cluster, group))
    return steps


def _uploads(cluster: Cluster, facts: Facts) -> Iterator[Request]:
    """The code, first of all: if that is rejected, nothing has started, and the job's name is still free."""
    if cluster.train.source is not None and not facts.is_sent:
        yield upload.send(cluster.folder.bucket, cluster.source_key, cluster.train.source)
    if cluster.toolkit is not None:
        yield upload.send_toolkit(cluster.folder.bucket, cluster.toolkit_key, cluster.toolkit)


def _later(cluster: Cluster, group: str) -> tuple[tuple[str, tuple[Request, ...]], ...]:
    """The requests after the nodes have started, with placeholders in <> for values that are not known yet.

    group: the placement group; empty for none.
    """
    running = [requests.put_cluster_file(cluster.folder, planned_cluster_file(cluster))]
    if cluster.resolved.data_volume == "multi-attach":
        volume = FromAnswer("data volume", "VolumeId")
        running = [requests.attach(volume, "<each node>"), requests.delete_with("<each node>"), *running]
    end = [Request("ec2", "TerminateInstances", {"InstanceIds": ["<all nodes>"]}, "terminate nodes and volumes")]
    if cluster.resolved.options.security_group is None:
        end.append(deletion("security-group", str(cluster.security_group), "delete the security group"))
    if group:
        end.append(deletion("placement-group", group, "delete the placement group"))
    end.append(deletion("schedule", group_name(cluster.job), "delete the time limit"))
    outcome = {"Bucket": cluster.folder.bucket, "Key": cluster.folder.outcome, "Body": "<outcome>"}
    end.append(Request("s3", "PutObject", outcome, "save how the job ended"))
    return (("once the nodes have started:", tuple(running)), ("at the end, even after a failure:", tuple(end)))
