"""Job + facts -> the cluster, from which requests are made, and why it cannot start.  Pure."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from launch.aws import containers
from launch.aws.containers import toolkit
from launch.aws.instances.facts import Ami, Subnet, quota_of, shortage
from launch.aws.lookup import unreadable
from launch.aws.names import PULLS_SINCE, SHARED_SINCE, Folder, bucket_of
from launch.aws.network import INTERNET, Exit, direct_hosts, without_dns
from launch.aws.pricelist import no_price
from launch.aws.upload import edited
from launch.core.catalog import Instance
from launch.core.clock import minute
from launch.core.errors import AwsError
from launch.core.job import Job
from launch.core.plan import FromAnswer
from launch.core.price import Prices
from launch.core.secrets import read_references
from launch.core.source.archive import Archive
from launch.core.training.base import Training
from launch.ec2 import requests
from launch.ec2.backend import command
from launch.ec2.checks import Resolved, check_price, in_container
from launch.ec2.facts import Facts, Snapshot
from launch.ec2.options import Ec2Options
from launch.ec2.requests import Cluster
from launch.ec2.volume_init import volume_init
from launch.ec2.warm import fits
from trainer.errors import SettingsError, TrainerError


def services(cluster: Cluster) -> tuple[str, ...]:
    """The services that a node must reach, as names of VPC endpoints, or INTERNET."""
    wanted = {"s3", "logs"}
    # An endpoint serves only the registry of its own region.
    is_near = cluster.image.startswith("<") or f".dkr.ecr.{cluster.region}." in cluster.registry
    wanted |= {"ecr.api", "ecr.dkr"} if is_near else {INTERNET}
    if cluster.downloads or cluster.toolkit:  # the packages that the image lacks come from PyPI
        wanted.add(INTERNET)
    wanted |= {reference.partition(":")[0] for reference in read_references(cluster.resolved.options.secret).values()}
    return tuple(sorted(wanted))


def why_unreachable(cluster: Cluster, facts: Facts, instance: Instance, subnet: Subnet) -> str:
    """Why nodes of this type could not report from `subnet`, with a remedy; empty if no reason is known."""
    route = facts.exits.get(subnet.id)
    if route is None or cluster.resolved.options.proxy:
        return ""
    has_one = requests.interfaces(cluster.resolved, instance) == 1
    missing = route.missing(services(cluster), has_address=subnet.gives_addresses and has_one)
    return _sentence(instance, subnet, route, missing, has_one=has_one) if missing else ""


def _sentence(instance: Instance, subnet: Subnet, route: Exit, missing: tuple[str, ...], *, has_one: bool) -> str:
    place, names = f"{subnet.id} in {subnet.zone}", ", ".join(missing)
    if route.shut:
        return f"nodes could not reach {names} from {place}: {_shut(route)}"
    if route.nameless & set(missing):
        return (
            f"nodes could not reach {names} from {place}: {route.vpc} gives its endpoints no DNS names; run aws ec2 "
            f"modify-vpc-attribute --vpc-id {route.vpc} --enable-dns-hostnames"
        )
    if route.way == "gateway" and not has_one:
        return (
            f"nodes could not reach {names} from {place}: AWS gives an instance with several network cards, such as "
            f"{instance.name} with EFA, no public address; give a --subnet with a route to a NAT gateway, or --no-efa."
        )
    if route.way == "gateway":
        return (
            f"nodes could not reach {names} from {place}: it gives them no public address; run aws ec2 "
            f"modify-subnet-attribute --subnet-id {subnet.id} --map-public-ip-on-launch, or give a --subnet with a "
            "route to a NAT gateway."
        )
    return (
        f"nodes could not reach {names} from {place}: it has no route to the internet, and no endpoints for them; "
        "give another --subnet, or make the endpoints: python -m launch.infra up --vpc-id VPC --endpoint-subnets SUBNET"
    )


def _shut(route: Exit) -> str:
    """What blocks all traffic, and the command that fixes it."""
    if route.shut == "dns":
        return (
            f"{route.vpc} has DNS support off, so they find no name; run aws ec2 modify-vpc-attribute "
            f"--vpc-id {route.vpc} --enable-dns-support"
        )
    entry = f"run aws ec2 create-network-acl-entry --network-acl-id {route.acl} --rule-number 1 --rule-action allow"
    if route.shut == "out":
        return (
            f"its network ACL {route.acl} lets no HTTPS out; {entry} --egress --protocol tcp --port-range "
            "From=443,To=443 --cidr-block 0.0.0.0/0, or give another --subnet"
        )
    return (
        f"its network ACL {route.acl} lets no answers in, which come to ports 32768 to 60999; {entry} --ingress "
        "--protocol tcp --port-range From=32768,To=60999 --cidr-block 0.0.0.0/0, or give another --subnet"
    )


def unreachable(cluster: Cluster, facts: Facts) -> tuple[str, ...]:
    """A sentence for each type and subnet from which nodes of the job could not report."""
    pairs = [(instance, subnet) for instance in cluster.resolved.instances for subnet in facts.subnets]
    sentences = [why_unreachable(cluster, facts, instance, subnet) for instance, subnet in pairs]
    return tuple(dict.fromkeys(sentence for sentence in sentences if sentence))


# EC2 begins to end a capacity block's instances 30 minutes before its end, and nodes need some time to save.
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-how.html
BEFORE_BLOCK_ENDS = timedelta(minutes=35)


def describe(
    job: Job[Ec2Options], resolved: Resolved, name: str, facts: Facts
) -> tuple[Cluster, tuple[TrainerError, ...]]:
    """The cluster, with placeholders in <> for unknown values, and the problems with it."""
    options, account = resolved.options, facts.account or "<account>"
    started, deadline = times(options, facts)
    image = facts.image or f"<digest of {options.image}>"
    cluster = Cluster(
        job=name,
        region=facts.region,
        resolved=resolved,
        folder=Folder(options.bucket or bucket_of(account, facts.region), name),
        image=image,
        registry=_registry(image),
        ami=facts.ami or Ami(options.ami or "<newest Deep Learning AMI>", "/dev/sda1"),
        snapshot=_snapshot(resolved, facts),
        scheduler_role=facts.scheduler_role or f"<ARN of {options.scheduler_role}>",
        started=started,
        deadline=deadline,
        train=in_container(resolved).called(name),
        security_group=options.security_group or _own_group(facts),
        prices=_prices(facts),
        owner=facts.owner,
        downloads=job.train.downloads and not resolved.brings_data,
        content=facts.counted,
        toolkit=_toolkit(job.train, image),
        direct=direct_hosts(facts.exits.values(), facts.region) if options.proxy else (),
    )
    cluster = _on_warm_nodes(cluster, facts)
    return cluster, _problems(cluster, facts)


def _on_warm_nodes(cluster: Cluster, facts: Facts) -> Cluster:
    """The cluster on nodes of an ended job, if there are such as it needs."""
    warm = next((nodes for nodes in facts.warm if fits(cluster, nodes)), None)
    if warm is None:
        return cluster
    group = cluster.resolved.options.security_group or warm.fleet.kind("security-group")[0].id
    return replace(cluster, warm=warm, security_group=group)


def _registry(image: str) -> str:
    return image.split("/")[0] if ".dkr.ecr." in image else ""


def _toolkit(train: Training, image: str) -> Archive | None:
    """The trainer, if the image is AWS's and so lacks it."""
    return toolkit(train, containers.lacking()) if containers.is_of_aws(image) else None


def _own_group(facts: Facts) -> str | FromAnswer:
    groups = facts.fleet.kind("security-group")
    return groups[0].id if groups else FromAnswer("security group", "GroupId")


def _prices(facts: Facts) -> Prices:
    """Spot prices are those of the job's first start: they decide on volume initialization, which is in requests."""
    return facts.prices if facts.prices.spot else replace(facts.prices, spot=facts.spot_usd_per_hour)


def _snapshot(resolved: Resolved, facts: Facts) -> Snapshot | None:
    if resolved.data_volume == "none":
        return None
    return facts.snapshot or Snapshot(resolved.options.data_snapshot or "<newest snapshot of the data set>", 0)


def times(options: Ec2Options, facts: Facts) -> tuple[datetime, datetime]:
    """Start and deadline: from job.json, unless that start has ended; else counted from now."""
    spec = facts.spec or {}
    goes_on = {"started", "deadline"} <= spec.keys() and "ended" not in spec
    if goes_on and (facts.fleet.living or _utc(spec["deadline"]) > facts.now):
        return _utc(spec["started"]), _utc(spec["deadline"])
    started = facts.now.astimezone(UTC).replace(microsecond=0)
    # The time limit begins with the nodes; see job_folder.py.
    hours = options.max_hours + options.wait_for_capacity
    deadline = started + timedelta(hours=hours, minutes=options.keep_warm)
    block = facts.reservation.ends if facts.reservation else None
    return started, min(deadline, block - BEFORE_BLOCK_ENDS) if block else deadline


def _utc(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _problems(cluster: Cluster, facts: Facts) -> tuple[TrainerError, ...]:
    """Why this cluster cannot be started, as far as is known."""
    shortages = [_shortage(cluster, facts, instance) for instance in cluster.resolved.instances]
    problems = [
        _other_settings(cluster, facts),
        _half_stopped(cluster, facts),
        _unreadable_source(cluster, facts),
        _too_expensive(cluster),
        _root_volume_too_small(cluster, facts),
        _reservation_too_small(cluster, facts),
        _block_about_to_end(cluster, facts),
        AwsError(mute) if (mute := without_dns(cluster.resolved.options.security_group, facts.closed_dns)) else None,
        shortages[0] if all(shortages) else None,
    ]
    return tuple(problem for problem in problems if problem is not None)


def _other_settings(cluster: Cluster, facts: Facts) -> TrainerError | None:
    if facts.spec is None:
        return None
    new, old = requests.spec(cluster), {**facts.spec}
    if "ended" in old:  # its time limit may be why it is started again
        old["where"] = {**old.get("where", {}), "max_hours": new["where"]["max_hours"]}
    differs = [key for key in ("where", "train", "region") if new[key] != old.get(key)]
    if not differs:
        return None
    if differs == ["train"] and (how := edited(" ".join(old.get("train", ())), " ".join(new["train"]))):
        return SettingsError(f"job {cluster.job} was started before: {how}; choose another --job-name.")
    return SettingsError(f"job {cluster.job} was started with other settings; choose another --job-name, or add --new.")


def _half_stopped(cluster: Cluster, facts: Facts) -> TrainerError | None:
    if facts.spec is None or "ended" not in facts.spec or not facts.fleet.present:
        return None
    stop = command("stop", cluster.job, cluster.region)
    return AwsError(f"job {cluster.job} has ended and its nodes are still there; remove them with {stop}")


def _unreadable_source(cluster: Cluster, facts: Facts) -> TrainerError | None:
    """An error if the node role may not read the script's source, or pull AWS's image: paid nodes would fail."""
    options = cluster.resolved.options
    has_default_role = (
        options.bucket is None and options.instance_profile == type(options).model_fields["instance_profile"].default
    )
    begins = cluster.nodes > len(facts.fleet.living)
    if not (has_default_role and begins and facts.old_stack):
        return None
    if cluster.toolkit is not None and facts.roles < PULLS_SINCE:
        return unreadable("nodes", facts.old_stack, "pull AWS's image")
    return unreadable("nodes", facts.old_stack) if cluster.source_key and facts.roles < SHARED_SINCE else None


def _too_expensive(cluster: Cluster) -> TrainerError | None:
    resolved, snapshot, prices = cluster.resolved, cluster.snapshot, cluster.prices
    is_priced = prices.are_known and all(map(prices.knows, resolved.instances))
    if resolved.options.max_usd is not None and not is_priced and not resolved.options.capacity_block:
        return no_price(resolved.options.max_usd, cluster.region)
    once = {i.name: volume_init(resolved, i, snapshot, prices).usd for i in resolved.instances}
    try:
        check_price(resolved, snapshot.gib if snapshot else 0, prices, once)
    except SettingsError as error:
        return error
    return None


def _root_volume_too_small(cluster: Cluster, facts: Facts) -> TrainerError | None:
    if facts.ami is None or facts.ami.gib <= cluster.resolved.options.root_gb:
        return None
    return SettingsError(f"{facts.ami.id} needs --root-gb {facts.ami.gib} or more.")


def _reservation_too_small(cluster: Cluster, facts: Facts) -> TrainerError | None:
    """An error if too few instances are free.  EC2 decides for a job that has begun: instances it does not list yet may
    belong to it.
    """
    reservation, fleet = facts.reservation, facts.fleet
    needed = 0 if cluster.warm else cluster.nodes - len(fleet.living)
    if reservation is None or reservation.free >= needed:
        return None
    text = f"reservation {reservation.id} has {reservation.free} instances free and {needed} are needed"
    if leaving := len(fleet.present) - len(fleet.living):
        return AwsError(f"{text}; {leaving} nodes still shut down: try again in a few minutes.", "NothingLeftToTry")
    if facts.spec is not None and "ended" not in facts.spec:
        return None
    return AwsError(f"{text}; lower --nodes, or give --wait-for-capacity.", "NothingLeftToTry")


def _block_about_to_end(cluster: Cluster, facts: Facts) -> TrainerError | None:
    reservation = facts.reservation
    if reservation is None or reservation.ends is None or cluster.deadline > facts.now:
        return None
    return AwsError(
        f"capacity block {reservation.id} ends at {minute(reservation.ends)}, and EC2 ends its instances "
        "half an hour before; give another --capacity-block."
    )


def _shortage(cluster: Cluster, facts: Facts, instance: Instance) -> TrainerError | None:
    """An error if a quota is too low for the missing nodes as `instance`; capacity blocks have no quota."""
    if cluster.resolved.options.capacity_block or cluster.warm:
        return None
    quota = facts.quotas.get(quota_of(instance, cluster.resolved.options.spot).name)
    if quota is not None and cluster.resolved.options.queue is not None:
        quota = replace(quota, running=0)  # it waits for those that run
    needed = (cluster.nodes - len(facts.fleet.living)) * instance.vcpus
    who = f"{cluster.nodes} x {instance.name} need"
    return shortage(quota, needed, who, "use fewer or smaller nodes", facts.region)
