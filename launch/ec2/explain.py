"""The facts, quotes and warnings of a plan.  Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from launch.aws import upload
from launch.aws.instances.facts import COUNTED, Family, quota_of
from launch.aws.instances.inventory import Node
from launch.aws.lookup import SET_UP
from launch.aws.names import LIMITS_SINCE, TOOLKIT
from launch.core import catalog, earlier, secrets
from launch.core.catalog import Instance
from launch.core.clock import minute
from launch.core.estimate.forecast import Forecast, hours
from launch.core.estimate.formulas import Figure, figure
from launch.core.estimate.rates import table
from launch.core.estimate.volume import NewVolume
from launch.core.manifest import Content
from launch.core.plan import Fact, Need, fact_of
from launch.core.quote import Market, Quote, images_in
from launch.core.training.base import Training
from launch.ec2.checks import highest_usd, hourly_usd
from launch.ec2.describe import unreachable
from launch.ec2.facts import Facts
from launch.ec2.options import Ec2Options
from launch.ec2.requests import Cluster
from launch.ec2.volume_init import VolumeInit, new_volume, paid, promised, shared, unpaid, volume_init

# A new volume -> the forecast with it, or None and why there is none.
Expected = Callable[[NewVolume | None], tuple[Forecast | None, str]]

# AWS's PyTorch images have 9 to 10 GB compressed: github.com/aws/deep-learning-containers, issue 3165.
OF_AWS = (
    "{}: AWS's, about 10 GB to pull on each node in some 5 min, with the trainer sent beside it; "
    "python -m launch.image push builds one with the trainer in it"
)
NOT_COUNTED = "public addresses, logs, S3, traffic between zones"


def plan_facts(cluster: Cluster, facts: Facts) -> tuple[Fact, ...]:
    resolved = cluster.resolved
    processes = cluster.nodes * resolved.nproc(resolved.instances[0])
    tags = {tag["Key"]: tag["Value"] for tag in cluster.tags}
    hours = resolved.options.max_hours
    rows = [
        Fact("account", facts.account, facts.account or "<unknown>"),
        Fact("region", facts.region),
        Fact("processes", processes, is_detail=True),
        Fact("training", list(cluster.train.words), cluster.train.shown),
        Fact("image", cluster.image, cluster.image if cluster.toolkit is None else OF_AWS.format(cluster.image)),
        Fact("machine_image", cluster.ami.id, is_detail=True),
        _data(cluster),
        Fact("job_folder", cluster.folder.uri, is_detail=True),
        Fact("tags", tags, ", ".join(f"{key}={value}" for key, value in tags.items()), is_detail=True),
        Fact("time_limit_h", hours, f"{hours:g} h, until {minute(cluster.deadline - cluster.warm_time)}", "time limit"),
        *_warm(cluster),
        _health(cluster),
        *upload.facts(cluster.train, facts.earlier, facts.is_sent),
        *secrets.facts(resolved.options.secret),
        *_quotas(cluster, facts),
        *_spot_scores(facts),
        *((facts.queue.fact,) if facts.queue else ()),
    ]
    if facts.fleet.living:
        running = len(facts.fleet.living)
        rows.append(Fact("running_nodes", running, f"{running} nodes of this job; only missing ones are started"))
    return tuple(rows)


def _warm(cluster: Cluster) -> Iterator[Fact]:
    """Warm nodes of another job, and how long this job's own wait for a next one."""
    if cluster.warm is not None:
        text = f"{cluster.nodes} warm nodes of {cluster.warm.job}, without booting"
        yield Fact("starts_on", cluster.warm.job, text, is_detail=True)
    if minutes := cluster.resolved.options.keep_warm:
        text = f"{minutes} min after the training, until {minute(cluster.deadline)} at most; stop ends them"
        yield Fact("keep_warm_min", minutes, text, "warm nodes")


def _spot_scores(facts: Facts) -> Iterator[Fact]:
    if facts.spot_scores:
        ordered = sorted(facts.spot_scores.items(), key=lambda row: (-row[1], row[0]))
        text = ", ".join(f"{zone} {score}" for zone, score in ordered)
        yield Fact("spot_scores", dict(ordered), f"{text}: how likely nodes start there, of 10", "spot scores")


def _health(cluster: Cluster) -> Fact:
    """The health check before each start of the training.  Its time was measured on nodes without GPUs."""
    is_on = cluster.train.health_check
    text = "GPUs, a matrix product, the network: some seconds a start; a node that fails is replaced once"
    text = f"{text}; --no-health-check skips it" if is_on else "none"
    return Fact("health_check", is_on, text, is_detail=True)


def _data(cluster: Cluster) -> Fact:
    volume, s3 = cluster.resolved.data_volume, cluster.resolved.options.data_s3
    snapshot = cluster.snapshot.id if cluster.snapshot else None
    value = {"volume": volume, "snapshot": snapshot, "s3": s3, **_counted(cluster)}
    texts = {
        "none": s3 or ("generated, downloaded or in the image" if cluster.train.dataset else "what the script fetches"),
        "per-node": f"a gp3 volume per node, created from {snapshot}",
        "multi-attach": f"one io2 volume for all nodes, created from {snapshot}",
    }
    return Fact("data", value, texts[volume] + _in_words(cluster))


def _counted(cluster: Cluster) -> dict[str, int]:
    content = cluster.content
    return {"train_images": content.train, "val_images": content.val, "bytes": content.bytes} if content else {}


def _in_words(cluster: Cluster) -> str:
    return f": {cluster.content.in_words}" if cluster.content else ""


def _quotas(cluster: Cluster, facts: Facts) -> list[Fact]:
    """The known vCPU quotas in one fact, with their current use."""
    resolved = cluster.resolved
    values, texts, needs = {}, [], list[Need]()
    for instance in resolved.instances:
        family = quota_of(instance, resolved.options.spot)
        quota = facts.quotas.get(family.name)
        if quota is None or not instance.is_known:
            continue
        needed = resolved.options.nodes * instance.vcpus
        values[instance.name] = {
            "quota": quota.name,
            "needed_vcpus": needed,
            "running_vcpus": quota.running,
            "limit_vcpus": quota.limit,
        }
        living = (cluster.warm.fleet if cluster.warm else facts.fleet).living
        needs.append(Need(quota.name, needed, quota.running, quota.limit, _held(family, living)))
        texts.append(f"{instance.name}: {needed} vCPUs needed, {quota.running} in use, {quota.limit:g} allowed "
                     f"({quota.name})")  # fmt: skip
    if resolved.options.capacity_block:  # has no quota
        needs = []
    return [Fact("quotas", values, tuple(texts), "quota", is_detail=True), fact_of(needs[:1])] if values else []


def _held(family: Family, living: Iterable[Node]) -> int:
    """vCPUs that these nodes, which are or become this job's, use of a quota."""
    return sum(node.vcpus for node in living if node.state in COUNTED and family.is_of(node.type, spot=node.spot))


def market(options: Ec2Options) -> Market:
    if options.spot:
        return "spot"
    return "reserved" if options.capacity_reservation or options.capacity_block else "on demand"


def not_counted(cluster: Cluster) -> str:
    block = ", the capacity block, which is paid in advance" if cluster.resolved.options.capacity_block else ""
    volume = cluster.resolved.data_volume != "none" and cluster.snapshot is not None and not cluster.snapshot.gib
    disk = ", the data volume, as its size is not known" if volume else ""
    return f"{NOT_COUNTED}{block}{disk}; prices are {cluster.prices.source}"


def quotes(train: Training, cluster: Cluster, facts: Facts) -> tuple[Quote, ...]:
    """One per candidate type, in the order in which they are tried."""
    return tuple(_quote(train, cluster, facts, instance) for instance in cluster.resolved.instances)


def _quote(train: Training, cluster: Cluster, facts: Facts, instance: Instance) -> Quote:
    resolved, options, prices = cluster.resolved, cluster.resolved.options, cluster.prices
    gib = cluster.snapshot.gib if cluster.snapshot else 0
    fill = volume_init(resolved, instance, cluster.snapshot, prices)
    is_priced = bool(options.capacity_block) or prices.knows(instance)
    on_demand = hourly_usd(resolved, instance, gib, prices) if is_priced else None
    usd_per_hour = on_demand
    if options.spot:
        spot = facts.spot_usd_per_hour.get(instance.name)
        usd_per_hour = None if spot is None else hourly_usd(resolved, instance, gib, prices, spot)
    on_ebs = resolved.data_volume != "none"

    def expected(volume: NewVolume | None) -> tuple[Forecast | None, str]:
        gpus, images = resolved.nproc(instance), images_in(cluster.content)
        return train.expect(instance, options.nodes, gpus=gpus, on_ebs=on_ebs, images=images, volume=volume)

    forecast, why_unknown = expected(new_volume(resolved, instance, cluster.snapshot, fill))
    notes = _volume_init_notes(cluster, instance, fill, expected)
    if options.data_s3 is not None:
        forecast, sentence = with_copy(forecast, cluster.content, instance)
        notes = (*notes, sentence)
    setting = earlier.setting_of(cluster.train, f"{options.nodes} x {instance.name}", options.model_dump(mode="json"))
    quote = Quote(
        instance=instance.name,
        nodes=options.nodes,
        market=market(options),
        usd_per_hour=usd_per_hour,
        on_demand_usd_per_hour=on_demand,
        most_usd=highest_usd(resolved, instance, gib, prices, fill.usd) if is_priced else None,
        most_s=options.max_hours * 3600,
        forecast=forecast,
        why_unknown=why_unknown,
        once_usd=0.0 if cluster.warm else fill.usd * options.nodes,
        notes=notes,
    )
    return earlier.with_time(quote, train, setting, facts.earlier)


def _volume_init_notes(cluster: Cluster, instance: Instance, fill: VolumeInit, expected: Expected) -> tuple[str, ...]:
    """How the data volumes are initialized, with its cost, or the cost of the alternative."""
    resolved, snapshot = cluster.resolved, cluster.snapshot
    if resolved.data_volume == "none":
        return ()
    if resolved.data_volume == "multi-attach":
        return (shared(),)
    if fill.rate is not None:
        return (paid(fill, resolved, snapshot),)
    better = promised(resolved, snapshot, cluster.prices)
    if better.rate is None:
        return (unpaid(0.0, better),)
    slow, quick = (expected(new_volume(resolved, instance, snapshot, one))[0] for one in (fill, better))
    return (unpaid(slow.hours - quick.hours if slow and quick else 0.0, better),)


def warnings(cluster: Cluster, facts: Facts) -> tuple[str, ...]:
    """Sentences about possible failures."""
    resolved = cluster.resolved
    sentences = [*facts.unknown, *resolved.warnings]
    sentences += [sentence for sentence in map(catalog.warning, resolved.instances) if sentence]
    sentences += [_unknown(one) for one in resolved.instances if not one.is_known]
    sentences += [f"left out: {why}" for why in unreachable(cluster, facts)]
    sentences += _beyond_the_policies(cluster)
    if facts.old_stack:
        sentences.append(_older_stack(facts))
    if "@" not in cluster.image and not cluster.image.startswith("<"):
        sentences.append(f"{cluster.image} has no digest; nodes that start later may run other code.")
    return tuple(sentences)


def _older_stack(facts: Facts) -> str:
    """What nodes may not do with the roles of an older stack, and the command that updates it."""
    what = "its nodes may neither pull AWS's own images nor, if it is very old, read the source of a script"
    if facts.roles < LIMITS_SINCE:
        what = "the time limit in EventBridge has no effect, so only the nodes' own timers end the job"
    return (
        f"the account's stack in {facts.old_stack} is older than this version: {what}; "
        f"update it with {SET_UP} --region {facts.old_stack}."
    )


def _unknown(instance: Instance) -> str:
    gpus = "one GPU is assumed" if instance.is_gpu else "no GPU is assumed"
    return f"{instance.name} is not in the catalog, and was not looked up: {gpus}, and its price is not known."


def _beyond_the_policies(cluster: Cluster) -> list[str]:
    """Warnings of permissions that infra/iam does not grant, without which every paid node would fail."""
    options, names = cluster.resolved.options, list[str]()
    prefix = f"{TOOLKIT}-"
    if options.bucket and not options.bucket.startswith(prefix):
        names.append(f"bucket {options.bucket}")
    if options.data_s3 and not options.data_s3.startswith(f"s3://{prefix}"):
        names.append(options.data_s3)
    if ".dkr.ecr." in cluster.image and f"/{TOOLKIT}" not in cluster.image and cluster.toolkit is None:
        names.append(f"image {cluster.image}")
    names += secrets.beyond_the_policies(options.secret)
    return [f"{name} is not in infra/iam/node.json; make sure that the node role may read it." for name in names]


UNKNOWN = "each node copies the data from S3 first; how long that takes is not known, and not in the expected time"


def with_copy(guess: Forecast | None, content: Content | None, instance: Instance) -> tuple[Forecast | None, str]:
    """The forecast including the copy's hours, and a sentence about it.  content: None if it was not counted."""
    if guess is None or content is None:
        return guess, UNKNOWN
    rate = _bytes_per_s(instance)
    value, best, worst = (content.bytes / rate.at(side) / 3600 for side in ("value", "best", "worst"))
    low, high = guess.hours_range
    longer = replace(guess, hours=guess.hours + value, hours_range=(low + best, high + worst))
    words = f"{content.bytes / 1e9:,.1f} GB from S3 first, in {hours(value)} at some {rate.value / 1e6:.0f} MB/s"
    return longer, f"each node copies {words} ({rate.source}), which is in the expected time"


def _bytes_per_s(instance: Instance) -> Figure:
    """Bytes per second of the copy to one node, limited by its network."""
    return figure(table("rates")["s3_copy_mb_per_s"]).times(1e6).at_most(instance.network_gbps.peak * 1e9 / 8)
