"""Job + facts -> the plan: every request in order, the price, and what speaks against it.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from launch import catalog
from launch.catalog import Instance
from launch.ec2 import requests
from launch.ec2.checks import Settled, highest_usd, hourly_usd, in_container
from launch.ec2.facts import Ami, Facts, Snapshot, Subnet
from launch.ec2.names import Folder, bucket_of, group_name
from launch.ec2.options import Ec2Options
from launch.ec2.quotas import quota_of
from launch.ec2.requests import Cluster
from launch.errors import AwsError
from launch.forecast import forecast
from launch.job import Job
from launch.plan import Choice, Late, Plan, Request, Step, Try
from launch.price import usd
from trainer.config import TrainConfig
from trainer.errors import SettingsError, TrainerError
from trainer.flags import to_argv

# RunInstances' errors after which another zone may do, and after which only another type may.
NO_CAPACITY = {
    "InsufficientInstanceCapacity": "no capacity",
    "InsufficientHostCapacity": "no capacity",
    "InsufficientReservedInstanceCapacity": "reservation full",
    "ReservationCapacityExceeded": "reservation full",
    "Unsupported": "not in this zone",
    "SpotMaxPriceTooLow": "spot price over the limit",
}
NO_QUOTA = {
    "VcpuLimitExceeded": "vCPU quota used up",
    "InstanceLimitExceeded": "instance quota used up",
    "MaxSpotInstanceCountExceeded": "spot quota used up",
}


@dataclass(frozen=True)
class Launch:
    """What carrying out a plan needs beyond its requests.  missing: nodes to start; 0 if all are there."""

    job: Job[Ec2Options]
    cluster: Cluster
    missing: int


def plan(job: Job[Ec2Options], settled: Settled, name: str, facts: Facts) -> Plan:
    """The plan for `job`, called `name`.  Raises SettingsError; what AWS is short of is among its problems."""
    cluster, problems = describe(job, settled, name, facts)
    living = facts.fleet.living
    missing = max(0, cluster.nodes - len(living))
    generation = max((node.generation for node in facts.fleet.nodes), default=0) + 1
    tries = _tries(cluster, facts, missing, generation)
    if missing and not tries:
        problems = (*problems, _nowhere(settled, facts))
    steps = [*_before(cluster, facts)]
    if missing and tries:
        steps.append(_choice(tries, missing))
    if settled.data_volume == "multi-attach" and not facts.fleet.kind("volume"):
        steps += requests.shared_volume(cluster)
    gib = cluster.snapshot.gib if cluster.snapshot else 0
    return Plan(
        title=f"{cluster.nodes} x {' or '.join(settled.options.instance_type)} on EC2, job {name}",
        facts=_facts(cluster, facts),
        steps=tuple(steps),
        price=_price(job.train, settled, facts, gib),
        warnings=_warnings(cluster, facts),
        problems=(*facts.problems, *problems),
        later=_later(cluster),
        inner=Launch(job, cluster, missing),
    )


def describe(
    job: Job[Ec2Options], settled: Settled, name: str, facts: Facts
) -> tuple[Cluster, tuple[TrainerError, ...]]:
    """The cluster, with texts in <> for what is unknown; and why it cannot be had, if so."""
    options, account = settled.options, facts.account or "<account>"
    started, deadline = _times(options, facts)
    image = facts.image or f"<digest of {options.image}>"
    registry = image.split("/")[0] if ".dkr.ecr." in image else ""
    groups = facts.fleet.kind("security-group")
    made = groups[0].id if groups else Late("security group", "GroupId")
    cluster = Cluster(
        job=name,
        region=facts.region,
        settled=settled,
        folder=Folder(options.bucket or bucket_of(account, facts.region), name),
        image=image,
        registry=registry,
        ami=facts.ami or Ami(options.ami or "<newest Deep Learning AMI>", "/dev/sda1"),
        snapshot=_snapshot(settled, facts),
        scheduler_role=facts.scheduler_role or f"<ARN of {options.scheduler_role}>",
        started=started,
        deadline=deadline,
        train=tuple(to_argv(in_container(job.train, settled))),
        security_group=options.security_group or made,
    )
    return cluster, _conflicts(cluster, facts)


def _snapshot(settled: Settled, facts: Facts) -> Snapshot | None:
    if settled.data_volume == "none":
        return None
    return facts.snapshot or Snapshot(settled.options.data_snapshot or "<newest snapshot of the data set>", 0)


def _times(options: Ec2Options, facts: Facts) -> tuple[datetime, datetime]:
    """When the job began and must end: as written down before, unless that start has ended; else from now."""
    spec = facts.spec
    if spec is not None and "ended" not in spec and (facts.fleet.living or _utc(spec["deadline"]) > facts.now):
        return _utc(spec["started"]), _utc(spec["deadline"])
    started = facts.now.astimezone(UTC).replace(microsecond=0)
    # Node 0 still boots when the job's time begins, and its own timer begins then.
    return started, started + timedelta(hours=options.max_hours, minutes=15)


def _utc(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _conflicts(cluster: Cluster, facts: Facts) -> tuple[TrainerError, ...]:
    """Why this cluster cannot be started, as far as facts tell."""
    problems: list[TrainerError] = []
    times = ("started", "deadline", "ended")
    if facts.spec is not None:
        asked = {key: value for key, value in requests.spec(cluster).items() if key not in times}
        if asked != {key: value for key, value in facts.spec.items() if key not in times}:
            problems.append(
                SettingsError(f"job {cluster.job} was started with other settings; give another --job-name.")
            )
    reservation = facts.reservation
    if reservation is not None and reservation.free < cluster.nodes - len(facts.fleet.living):
        problems.append(
            AwsError(f"reservation {reservation.id} has {reservation.free} machines free; --nodes asks for more.")
        )
    short = [_shortage(cluster, facts, instance) for instance in cluster.settled.instances]
    if all(short):
        problems += [problem for problem in short[:1] if problem]
    return tuple(problems)


def _shortage(cluster: Cluster, facts: Facts, instance: Instance) -> TrainerError | None:
    """The quota that has no room for the missing nodes as `instance`, if any; capacity blocks have none."""
    if cluster.settled.options.capacity_block:
        return None
    quota = facts.quotas.get(quota_of(instance, cluster.settled.options.spot).name)
    need = (cluster.nodes - len(facts.fleet.living)) * instance.vcpus
    if quota is None or need <= 0 or need + quota.running <= quota.limit:
        return None
    return AwsError(
        f"{cluster.nodes} x {instance.name} need {need} vCPUs, {quota.running} run already, and the quota "
        f"'{quota.name}' is {quota.limit:g}; ask for more under Service Quotas, or take fewer or smaller nodes."
    )


def _nowhere(settled: Settled, facts: Facts) -> TrainerError:
    zones = ", ".join(subnet.zone for subnet in facts.subnets) or "no zone"
    return AwsError(
        f"{' or '.join(settled.options.instance_type)} is not offered where there are subnets ({zones}); give another "
        "--instance-type, --zones or --region."
    )


def _tries(cluster: Cluster, facts: Facts, count: int, generation: int) -> tuple[Try, ...]:
    """Zone after zone of the first type, then of the next; near living nodes, if there are any."""
    living, reservation = facts.fleet.living, facts.reservation
    subnets = facts.subnets or (Subnet("<subnet>", "<zone>", "<vpc>"),)
    if living:
        subnets = tuple(s for s in subnets if s.id == living[0].subnet) or subnets
    if reservation is not None:
        subnets = tuple(s for s in subnets if s.zone == reservation.zone)
    market = "spot" if cluster.settled.options.spot else "on demand"
    return tuple(
        Try(
            requests.run_instances(cluster, instance, subnet, count, generation),
            (instance.name, subnet.zone, market),
            instance.name,
        )
        for instance in cluster.settled.instances
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
    settled, fleet = cluster.settled, facts.fleet
    steps: list[Step] = [requests.put_spec(cluster), *requests.log_group(retention=not facts.has_log_group)]
    steps += requests.time_limit(cluster, exists=bool(fleet.kind("schedule")))
    if settled.options.security_group is None:
        if isinstance(cluster.security_group, Late):
            vpc = facts.subnets[0].vpc if facts.subnets else "<default VPC>"
            steps += requests.security_group(cluster, vpc)
        else:
            steps += requests.security_rules(cluster.security_group)
    if requests.is_placed(settled) and not fleet.kind("placement-group"):
        steps.append(requests.placement_group(cluster))
    return steps


def _later(cluster: Cluster) -> tuple[tuple[str, tuple[Request, ...]], ...]:
    """What follows once the nodes run, shown with texts for what their start will tell."""
    from launch.ec2.cluster import members_of_plan

    told = requests.put_cluster(cluster.folder, members_of_plan(cluster))
    run: list[Request] = [told]
    if cluster.settled.data_volume == "multi-attach":
        run = [requests.attach(Late("data volume", "VolumeId"), Late("nodes", "Instances[*].InstanceId")), told]
    end = [Request("ec2", "TerminateInstances", {"InstanceIds": ["<all nodes>"]}, "end the nodes, and their volumes")]
    name = {"GroupName": group_name(cluster.job)}
    if isinstance(cluster.security_group, Late) or cluster.settled.options.security_group is None:
        end.append(Request("ec2", "DeleteSecurityGroup", {"GroupId": str(cluster.security_group)}, "its group"))
    if requests.is_placed(cluster.settled):
        end.append(Request("ec2", "DeletePlacementGroup", name, "its placement group"))
    end.append(Request("scheduler", "DeleteSchedule", {"Name": group_name(cluster.job)}, "and the time limit"))
    return (("as soon as the nodes are started:", tuple(run)), ("at the end, whatever happened:", tuple(end)))


def _facts(cluster: Cluster, facts: Facts) -> tuple[tuple[str, str], ...]:
    settled, snapshot = cluster.settled, cluster.snapshot
    instance = settled.instances[0]
    processes = cluster.nodes * settled.nproc(instance)
    data = {
        "none": settled.options.data_s3 or "in the image, or downloaded",
        "per-node": f"a gp3 volume per node from {snapshot.id if snapshot else ''}",
        "multi-attach": f"one io2 volume for all nodes from {snapshot.id if snapshot else ''}",
    }[settled.data_volume]
    rows = [
        ("account", f"{facts.account or '<unknown>'}, {facts.region}"),
        ("training", f"{processes} processes: " + " ".join(cluster.train)),
        ("image", cluster.image),
        ("machine image", cluster.ami.id),
        ("data", data),
        ("job folder", cluster.folder.uri),
        ("tags", ", ".join(f"{tag['Key']}={tag['Value']}" for tag in cluster.tags)),
        ("time limit", f"{settled.options.max_hours:g} h, until {cluster.deadline:%Y-%m-%d %H:%M} UTC"),
    ]
    rows += [("quota", _quota_row(settled, facts, i)) for i in settled.instances if _quota_row(settled, facts, i)]
    if facts.fleet.living:
        rows.append(("running", f"{len(facts.fleet.living)} nodes of this job; only what is missing is started"))
    return tuple(rows)


def _quota_row(settled: Settled, facts: Facts, instance: Instance) -> str:
    quota = facts.quotas.get(quota_of(instance, settled.options.spot).name)
    if quota is None:
        return ""
    need = settled.options.nodes * instance.vcpus
    return f"{instance.name}: {need} vCPUs needed + {quota.running} running <= {quota.limit:g} ({quota.name})"


def _price(train: TrainConfig, settled: Settled, facts: Facts, gib: int) -> tuple[tuple[str, str], ...]:
    rows = []
    for instance in settled.instances:
        hourly, most = hourly_usd(settled, instance, gib), highest_usd(settled, instance, gib)
        rows.append((instance.name, f"{usd(hourly)} per hour on demand, all nodes with their volumes"))
        spot = facts.spot_usd_per_hour.get(instance.name)
        if settled.options.spot:
            now = f"{usd(hourly_usd(settled, instance, gib, spot))} per hour now" if spot else "not looked up"
            rows.append(("  spot", f"{now}; it may rise to the price on demand"))
        rows.append(("  expected", _expected(train, settled, instance, hourly_usd(settled, instance, gib, spot))))
        rows.append(("  at most", f"{usd(most)} in {settled.options.max_hours:g} h; then the time limit ends it"))
    rows.append(("not counted", "logs, S3, traffic between zones; prices are those of us-east-1"))
    return tuple(rows)


def _expected(train: TrainConfig, settled: Settled, instance: Instance, hourly: float) -> str:
    on_ebs = settled.data_volume != "none"
    guess = forecast(train, instance, settled.options.nodes, data_on_ebs=on_ebs)
    if guess is None:
        return f"no estimate for {train.model} on {train.dataset} with {instance.name}"
    return (
        f"{usd(hourly * guess.hours)} in {guess.hours:.1f} h: {guess.seconds_per_epoch:,.0f} s per epoch, "
        f"{guess.images_per_s:,.0f} images/s, limited by {guess.limit}"
    )


def _warnings(cluster: Cluster, facts: Facts) -> tuple[str, ...]:
    settled, found = cluster.settled, list(facts.unknown)
    found += [text for instance in settled.instances if (text := catalog.warning(instance))]
    for instance in settled.instances:
        if requests.uses_efa(settled, instance) and instance.efa > 1 and not settled.options.subnet:
            found.append(
                f"{instance.name} has {instance.efa} network cards, and AWS gives such machines no public address; "
                "give a --subnet that reaches the internet through a NAT gateway, or the nodes cannot fetch the image."
            )
    if settled.data_volume == "per-node" and requests.initialization_rate(cluster.nodes) is None:
        found.append("with so many nodes the volumes load lazily: the region's quota for initialization is too small.")
    if "@" not in cluster.image and not cluster.image.startswith("<"):
        found.append(f"{cluster.image} names no digest; nodes started later may run other code.")
    return tuple(found)


def inner(plan: Plan) -> Launch:
    """What plan() left for whoever carries it out."""
    launch: Any = plan.inner
    assert isinstance(launch, Launch)
    return launch
