"""Job + facts -> the cluster that requests are made of, and why it cannot be had, if so.  Pure."""

from datetime import UTC, datetime, timedelta

from launch.core.catalog import Instance
from launch.core.errors import AwsError
from launch.core.job import Job
from launch.core.names import Folder, bucket_of
from launch.core.plan import FromAnswer
from launch.ec2 import machines, requests
from launch.ec2.checks import Resolved, check_price, in_container
from launch.ec2.facts import Ami, Facts, Snapshot
from launch.ec2.options import Ec2Options
from launch.ec2.quotas import quota_of
from launch.ec2.requests import Cluster
from trainer.errors import SettingsError, TrainerError
from trainer.settings.flags import to_argv

USER_DATA_LIMIT = 16_384  # bytes, before base64


def describe(
    job: Job[Ec2Options], resolved: Resolved, name: str, facts: Facts
) -> tuple[Cluster, tuple[TrainerError, ...]]:
    """The cluster, with texts in <> for what is unknown; and why it cannot be had, if so."""
    options, account = resolved.options, facts.account or "<account>"
    started, deadline = _times(options, facts)
    image = facts.image or f"<digest of {options.image}>"
    registry = image.split("/")[0] if ".dkr.ecr." in image else ""
    groups = facts.fleet.kind("security-group")
    made = groups[0].id if groups else FromAnswer("security group", "GroupId")
    cluster = Cluster(
        job=name,
        region=facts.region,
        resolved=resolved,
        folder=Folder(options.bucket or bucket_of(account, facts.region), name),
        image=image,
        registry=registry,
        ami=facts.ami or Ami(options.ami or "<newest Deep Learning AMI>", "/dev/sda1"),
        snapshot=_snapshot(resolved, facts),
        scheduler_role=facts.scheduler_role or f"<ARN of {options.scheduler_role}>",
        started=started,
        deadline=deadline,
        train=tuple(to_argv(in_container(job.train, resolved))),
        security_group=options.security_group or made,
    )
    return cluster, _conflicts(cluster, facts)


def _snapshot(resolved: Resolved, facts: Facts) -> Snapshot | None:
    if resolved.data_volume == "none":
        return None
    return facts.snapshot or Snapshot(resolved.options.data_snapshot or "<newest snapshot of the data set>", 0)


def _times(options: Ec2Options, facts: Facts) -> tuple[datetime, datetime]:
    """When the job began and must end: as written down before, unless that start has ended; else from now."""
    spec = facts.spec
    if spec is not None and "ended" not in spec and (facts.fleet.living or _utc(spec["deadline"]) > facts.now):
        return _utc(spec["started"]), _utc(spec["deadline"])
    started = facts.now.astimezone(UTC).replace(microsecond=0)
    return started, started + timedelta(hours=options.max_hours)


def _utc(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _conflicts(cluster: Cluster, facts: Facts) -> tuple[TrainerError, ...]:
    """Why this cluster cannot be started, as far as facts tell."""
    short = [_shortage(cluster, facts, instance) for instance in cluster.resolved.instances]
    found = [
        _other_settings(cluster, facts),
        _half_stopped(cluster, facts),
        _too_long(cluster),
        _too_dear(cluster),
        _no_room_for_the_system(cluster, facts),
        _reservation_too_small(cluster, facts),
        short[0] if all(short) else None,
    ]
    return tuple(problem for problem in found if problem is not None)


def _other_settings(cluster: Cluster, facts: Facts) -> TrainerError | None:
    asked = requests.spec(cluster)
    if facts.spec is None or all(asked[key] == facts.spec.get(key) for key in ("where", "train", "region")):
        return None
    return SettingsError(f"job {cluster.job} was started with other settings; give another --job-name.")


def _half_stopped(cluster: Cluster, facts: Facts) -> TrainerError | None:
    if facts.spec is None or "ended" not in facts.spec or not facts.fleet.ending:
        return None
    return AwsError(f"job {cluster.job} is being taken down; run python -m launch.ec2 stop {cluster.job} to its end.")


def _too_long(cluster: Cluster) -> TrainerError | None:
    size = max(len(machines.user_data(cluster, instance).encode()) for instance in cluster.resolved.instances)
    if size <= USER_DATA_LIMIT:
        return None
    return SettingsError(f"the settings make a boot script of {size:,} bytes, and EC2 takes 16,384; give fewer.")


def _too_dear(cluster: Cluster) -> TrainerError | None:
    try:
        check_price(cluster.resolved, cluster.snapshot.gib if cluster.snapshot else 0)
    except SettingsError as error:
        return error
    return None


def _no_room_for_the_system(cluster: Cluster, facts: Facts) -> TrainerError | None:
    if facts.ami is None or facts.ami.gib <= cluster.resolved.options.root_gb:
        return None
    return SettingsError(f"{facts.ami.id} needs --root-gb {facts.ami.gib} or more.")


def _reservation_too_small(cluster: Cluster, facts: Facts) -> TrainerError | None:
    reservation = facts.reservation
    if reservation is None or reservation.free >= cluster.nodes - len(facts.fleet.living):
        return None
    return AwsError(f"reservation {reservation.id} has {reservation.free} machines free; --nodes asks for more.")


def _shortage(cluster: Cluster, facts: Facts, instance: Instance) -> TrainerError | None:
    """The quota that has no room for the missing nodes as `instance`, if any; capacity blocks have none."""
    if cluster.resolved.options.capacity_block:
        return None
    quota = facts.quotas.get(quota_of(instance, cluster.resolved.options.spot).name)
    need = (cluster.nodes - len(facts.fleet.living)) * instance.vcpus
    if quota is None or need <= 0 or need + quota.running <= quota.limit:
        return None
    return AwsError(
        f"{cluster.nodes} x {instance.name} need {need} vCPUs, {quota.running} run already, and the quota "
        f"'{quota.name}' is {quota.limit:g}; ask for more under Service Quotas, or take fewer or smaller nodes."
    )
