"""What a plan says beside its requests: facts, price and warnings, for a reader.  Pure."""

from launch.core import catalog, secrets
from launch.core.catalog import Instance
from launch.core.estimate.words import expected
from launch.core.names import TOOLKIT
from launch.core.price import usd
from launch.ec2 import machines
from launch.ec2.checks import Settled, highest_usd, hourly_usd
from launch.ec2.facts import Facts
from launch.ec2.quotas import quota_of
from launch.ec2.requests import Cluster
from trainer.config import TrainConfig


def facts_rows(cluster: Cluster, facts: Facts) -> tuple[tuple[str, str], ...]:
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
    rows += secrets.row(settled.options.secret)
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


def price_rows(train: TrainConfig, settled: Settled, facts: Facts, gib: int) -> tuple[tuple[str, str], ...]:
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
    rows.append(("not counted", "public addresses, logs, S3, traffic between zones; prices are those of us-east-1"))
    return tuple(rows)


def _expected(train: TrainConfig, settled: Settled, instance: Instance, hourly: float) -> str:
    on_ebs, gpus = settled.data_volume != "none", settled.nproc(instance)
    return expected(train, instance, settled.options.nodes, hourly, gpus=gpus, on_ebs=on_ebs)


def warnings(cluster: Cluster, facts: Facts) -> tuple[str, ...]:
    settled, found = cluster.settled, list(facts.unknown)
    found += [text for instance in settled.instances if (text := catalog.warning(instance))]
    for instance in settled.instances:
        if machines.uses_efa(settled, instance) and instance.efa > 1 and not settled.options.subnet:
            found.append(
                f"{instance.name} has {instance.efa} network cards, and AWS gives such machines no public address; "
                "give a --subnet that reaches the internet through a NAT gateway, or the nodes cannot fetch the image."
            )
    if settled.data_volume == "per-node" and machines.initialization_rate(cluster.nodes) is None:
        found.append("with so many nodes the volumes load lazily: the region's quota for initialization is too small.")
    found += _beyond_the_policies(cluster)
    if "@" not in cluster.image and not cluster.image.startswith("<"):
        found.append(f"{cluster.image} names no digest; nodes started later may run other code.")
    return tuple(found)


def _beyond_the_policies(cluster: Cluster) -> list[str]:
    """What infra/iam does not grant, and what every node would fail at after it was paid for."""
    options, beyond = cluster.settled.options, list[str]()
    ours = f"{TOOLKIT}-"
    if options.bucket and not options.bucket.startswith(ours):
        beyond.append(f"bucket {options.bucket}")
    if options.data_s3 and not options.data_s3.startswith((f"s3://{ours}",)):
        beyond.append(options.data_s3)
    if ".dkr.ecr." in cluster.image and f"/{TOOLKIT}" not in cluster.image:
        beyond.append(f"image {cluster.image}")
    beyond += secrets.beyond_the_policies(options.secret)
    return [f"{what} is not in infra/iam/node.json; make sure that your node role may read it." for what in beyond]
