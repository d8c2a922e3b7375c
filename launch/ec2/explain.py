"""What a plan says beside its requests: facts, price and warnings, for a reader.  Pure."""

from launch.core import catalog, secrets
from launch.core.catalog import Instance
from launch.core.estimate.words import expected
from launch.core.names import TOOLKIT
from launch.core.price import usd
from launch.ec2 import machines
from launch.ec2.checks import Resolved, highest_usd, hourly_usd
from launch.ec2.facts import Facts
from launch.ec2.quotas import quota_of
from launch.ec2.requests import Cluster
from trainer.config import TrainConfig


def facts_rows(cluster: Cluster, facts: Facts) -> tuple[tuple[str, str], ...]:
    resolved, snapshot = cluster.resolved, cluster.snapshot
    instance = resolved.instances[0]
    processes = cluster.nodes * resolved.nproc(instance)
    data = {
        "none": resolved.options.data_s3 or "in the image, or downloaded",
        "per-node": f"a gp3 volume per node from {snapshot.id if snapshot else ''}",
        "multi-attach": f"one io2 volume for all nodes from {snapshot.id if snapshot else ''}",
    }[resolved.data_volume]
    rows = [
        ("account", f"{facts.account or '<unknown>'}, {facts.region}"),
        ("training", f"{processes} processes: " + " ".join(cluster.train)),
        ("image", cluster.image),
        ("machine image", cluster.ami.id),
        ("data", data),
        ("job folder", cluster.folder.uri),
        ("tags", ", ".join(f"{tag['Key']}={tag['Value']}" for tag in cluster.tags)),
        ("time limit", f"{resolved.options.max_hours:g} h, until {cluster.deadline:%Y-%m-%d %H:%M} UTC"),
    ]
    rows += secrets.row(resolved.options.secret)
    rows += [("quota", _quota_row(resolved, facts, i)) for i in resolved.instances if _quota_row(resolved, facts, i)]
    if facts.fleet.living:
        rows.append(("running", f"{len(facts.fleet.living)} nodes of this job; only what is missing is started"))
    return tuple(rows)


def _quota_row(resolved: Resolved, facts: Facts, instance: Instance) -> str:
    quota = facts.quotas.get(quota_of(instance, resolved.options.spot).name)
    if quota is None:
        return ""
    need = resolved.options.nodes * instance.vcpus
    return f"{instance.name}: {need} vCPUs needed + {quota.running} running <= {quota.limit:g} ({quota.name})"


def price_rows(train: TrainConfig, resolved: Resolved, facts: Facts, gib: int) -> tuple[tuple[str, str], ...]:
    rows = []
    for instance in resolved.instances:
        hourly, most = hourly_usd(resolved, instance, gib), highest_usd(resolved, instance, gib)
        rows.append((instance.name, f"{usd(hourly)} per hour on demand, all nodes with their volumes"))
        spot = facts.spot_usd_per_hour.get(instance.name)
        if resolved.options.spot:
            now = f"{usd(hourly_usd(resolved, instance, gib, spot))} per hour now" if spot else "not looked up"
            rows.append(("  spot", f"{now}; it may rise to the price on demand"))
        rows.append(("  expected", _expected(train, resolved, instance, hourly_usd(resolved, instance, gib, spot))))
        rows.append(("  at most", f"{usd(most)} in {resolved.options.max_hours:g} h; then the time limit ends it"))
    rows.append(("not counted", "public addresses, logs, S3, traffic between zones; prices are those of us-east-1"))
    return tuple(rows)


def _expected(train: TrainConfig, resolved: Resolved, instance: Instance, hourly: float) -> str:
    on_ebs, gpus = resolved.data_volume != "none", resolved.nproc(instance)
    return expected(train, instance, resolved.options.nodes, hourly, gpus=gpus, on_ebs=on_ebs)


def warnings(cluster: Cluster, facts: Facts) -> tuple[str, ...]:
    resolved, found = cluster.resolved, list(facts.unknown)
    found += [text for instance in resolved.instances if (text := catalog.warning(instance))]
    for instance in resolved.instances:
        if machines.uses_efa(resolved, instance) and instance.efa > 1 and not resolved.options.subnet:
            found.append(
                f"{instance.name} has {instance.efa} network cards, and AWS gives such machines no public address; "
                "give a --subnet that reaches the internet through a NAT gateway, or the nodes cannot fetch the image."
            )
    if resolved.data_volume == "per-node" and machines.initialization_rate(cluster.nodes) is None:
        found.append("with so many nodes the volumes load lazily: the region's quota for initialization is too small.")
    found += _beyond_the_policies(cluster)
    if "@" not in cluster.image and not cluster.image.startswith("<"):
        found.append(f"{cluster.image} names no digest; nodes started later may run other code.")
    return tuple(found)


def _beyond_the_policies(cluster: Cluster) -> list[str]:
    """What infra/iam does not grant, and what every node would fail at after it was paid for."""
    options, beyond = cluster.resolved.options, list[str]()
    ours = f"{TOOLKIT}-"
    if options.bucket and not options.bucket.startswith(ours):
        beyond.append(f"bucket {options.bucket}")
    if options.data_s3 and not options.data_s3.startswith((f"s3://{ours}",)):
        beyond.append(options.data_s3)
    if ".dkr.ecr." in cluster.image and f"/{TOOLKIT}" not in cluster.image:
        beyond.append(f"image {cluster.image}")
    beyond += secrets.beyond_the_policies(options.secret)
    return [f"{what} is not in infra/iam/node.json; make sure that your node role may read it." for what in beyond]
