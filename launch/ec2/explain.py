"""The facts, quotes and warnings of a plan.  Pure."""

from launch.core import catalog, secrets
from launch.core.catalog import Instance
from launch.core.names import TOOLKIT
from launch.core.plan import Fact
from launch.core.quote import Market, Quote, expect
from launch.ec2 import machines
from launch.ec2.checks import Resolved, highest_usd, hourly_usd
from launch.ec2.facts import Facts
from launch.ec2.options import Ec2Options
from launch.ec2.quotas import quota_of
from launch.ec2.requests import Cluster
from trainer.config import TrainConfig

NOT_COUNTED = "public addresses, logs, S3, traffic between zones; prices are those of us-east-1"


def plan_facts(cluster: Cluster, facts: Facts) -> tuple[Fact, ...]:
    resolved = cluster.resolved
    processes = cluster.nodes * resolved.nproc(resolved.instances[0])
    arguments = " ".join(cluster.train)
    tags = {tag["Key"]: tag["Value"] for tag in cluster.tags}
    hours = resolved.options.max_hours
    rows = [
        Fact("account", facts.account, facts.account or "<unknown>"),
        Fact("region", facts.region),
        Fact("processes", processes),
        Fact("training", list(cluster.train), arguments),
        Fact("image", cluster.image),
        Fact("machine_image", cluster.ami.id),
        _data(cluster),
        Fact("job_folder", cluster.folder.uri),
        Fact("tags", tags, ", ".join(f"{key}={value}" for key, value in tags.items())),
        Fact("time_limit_h", hours, f"{hours:g} h, until {cluster.deadline:%Y-%m-%d %H:%M} UTC", "time limit"),
        *secrets.facts(resolved.options.secret),
        *_quotas(resolved, facts),
    ]
    if facts.fleet.living:
        running = len(facts.fleet.living)
        rows.append(Fact("running_nodes", running, f"{running} nodes of this job; only missing ones are started"))
    return tuple(rows)


def _data(cluster: Cluster) -> Fact:
    volume, s3 = cluster.resolved.data_volume, cluster.resolved.options.data_s3
    snapshot = cluster.snapshot.id if cluster.snapshot else None
    value = {"volume": volume, "snapshot": snapshot, "s3": s3}
    texts = {
        "none": s3 or "generated, downloaded or in the image",
        "per-node": f"a gp3 volume per node, created from {snapshot}",
        "multi-attach": f"one io2 volume for all nodes, created from {snapshot}",
    }
    return Fact("data", value, texts[volume])


def _quotas(resolved: Resolved, facts: Facts) -> list[Fact]:
    """The vCPU quotas that are known, in one fact."""
    values, texts = {}, []
    for instance in resolved.instances:
        quota = facts.quotas.get(quota_of(instance, resolved.options.spot).name)
        if quota is None:
            continue
        needed = resolved.options.nodes * instance.vcpus
        values[instance.name] = {
            "quota": quota.name,
            "needed_vcpus": needed,
            "running_vcpus": quota.running,
            "limit_vcpus": quota.limit,
        }
        texts.append(f"{instance.name}: {needed} vCPUs needed, {quota.running} in use, {quota.limit:g} allowed "
                     f"({quota.name})")  # fmt: skip
    return [Fact("quotas", values, tuple(texts), "quota")] if values else []


def market(options: Ec2Options) -> Market:
    if options.spot:
        return "spot"
    return "reserved" if options.capacity_reservation or options.capacity_block else "on demand"


def quotes(train: TrainConfig, resolved: Resolved, facts: Facts, gib: int) -> tuple[Quote, ...]:
    """One per candidate type, in the order in which they are tried.  gib: size of the data volume."""
    return tuple(_quote(train, resolved, facts, instance, gib) for instance in resolved.instances)


def _quote(train: TrainConfig, resolved: Resolved, facts: Facts, instance: Instance, gib: int) -> Quote:
    options = resolved.options
    on_demand = hourly_usd(resolved, instance, gib)
    usd_per_hour: float | None = on_demand
    if options.spot:
        spot = facts.spot_usd_per_hour.get(instance.name)
        usd_per_hour = None if spot is None else hourly_usd(resolved, instance, gib, spot)
    on_ebs = resolved.data_volume != "none"
    forecast, why_unknown = expect(train, instance, options.nodes, gpus=resolved.nproc(instance), on_ebs=on_ebs)
    return Quote(
        instance=instance.name,
        nodes=options.nodes,
        market=market(options),
        usd_per_hour=usd_per_hour,
        on_demand_usd_per_hour=on_demand,
        most_usd=highest_usd(resolved, instance, gib),
        most_s=options.max_hours * 3600,
        forecast=forecast,
        why_unknown=why_unknown,
    )


def warnings(cluster: Cluster, facts: Facts) -> tuple[str, ...]:
    """Sentences on what may go wrong."""
    resolved = cluster.resolved
    sentences = [*facts.unknown, *resolved.warnings]
    for instance in resolved.instances:
        sentences += _about_type(resolved, instance)
    if resolved.data_volume == "per-node" and machines.initialization_rate(cluster.nodes) is None:
        sentences.append(
            "the data volumes load slowly at first: the region's quota for initialization does not cover so many nodes."
        )
    sentences += _beyond_the_policies(cluster)
    if "@" not in cluster.image and not cluster.image.startswith("<"):
        sentences.append(f"{cluster.image} has no digest; nodes that start later may run other code.")
    return tuple(sentences)


def _about_type(resolved: Resolved, instance: Instance) -> list[str]:
    sentences = [sentence for sentence in [catalog.warning(instance)] if sentence]
    if machines.uses_efa(resolved, instance) and instance.efa > 1 and not resolved.options.subnet:
        sentences.append(
            f"{instance.name} has {instance.efa} network cards, and AWS gives such instances no public address; "
            "give a --subnet with a NAT gateway, or the nodes cannot pull the image."
        )
    return sentences


def _beyond_the_policies(cluster: Cluster) -> list[str]:
    """Warnings of what infra/iam does not grant, and at which every node would fail after it was paid for."""
    options, names = cluster.resolved.options, list[str]()
    prefix = f"{TOOLKIT}-"
    if options.bucket and not options.bucket.startswith(prefix):
        names.append(f"bucket {options.bucket}")
    if options.data_s3 and not options.data_s3.startswith(f"s3://{prefix}"):
        names.append(options.data_s3)
    if ".dkr.ecr." in cluster.image and f"/{TOOLKIT}" not in cluster.image:
        names.append(f"image {cluster.image}")
    names += secrets.beyond_the_policies(options.secret)
    return [f"{name} is not in infra/iam/node.json; make sure that the node role may read it." for name in names]
