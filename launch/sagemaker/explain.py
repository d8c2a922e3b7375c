"""What a plan says beside its requests: facts, price and warnings, for a reader.  Pure."""

import re

from launch.core import catalog, secrets
from launch.core.estimate.words import expected
from launch.core.names import TOOLKIT, Folder
from launch.core.price import usd
from launch.sagemaker.bundle import Bundle
from launch.sagemaker.checks import ENDING_S, Resolved
from launch.sagemaker.estimator import Estimator
from launch.sagemaker.facts import Facts, Quota
from launch.sagemaker.images import Image, warnings_about
from trainer.config import TrainConfig
from trainer.settings import flags

# SageMaker's own data sheet says "up to"; what a job saved is known at its end.
SPOT_SAVES = 0.9

Rows = tuple[tuple[str, str], ...]


def facts_rows(
    resolved: Resolved, facts: Facts, train: TrainConfig, folder: Folder, estimator: Estimator, bundle: Bundle
) -> Rows:
    options = resolved.options
    data = ", ".join(f"{channel.name}: {channel.uri}" for channel in resolved.channels)
    mode = f" ({options.input_mode})" if any(channel.kind == "s3" for channel in resolved.channels) else ""
    rows = [
        ("account", f"{facts.account or '<unknown>'}, {facts.region}"),
        ("training", f"{resolved.processes} processes by {_starter(options.distribution)}: {_command(train)}"),
        ("image", estimator.arguments["image_uri"]),
        ("role", f"{estimator.arguments['role']}{f' (from {facts.role_from})' if facts.role_from else ''}"),
        ("data", f"{data}{mode}" if data else "in the image, or downloaded"),
        ("job folder", folder.uri),
        ("source", f"{len(bundle.names)} files, {len(bundle.content):,} bytes, SHA-256 {bundle.digest[:16]}"),
        ("tags", ", ".join(f"{tag['Key']}={tag['Value']}" for tag in estimator.arguments["tags"])),
        ("time limit", _time_limit(resolved)),
    ]
    rows += secrets.row(options.secret)
    rows += [("quota", _quota_row(resolved, quota)) for quota in facts.quotas]
    return tuple(rows)


def _starter(distribution: str) -> str:
    return "mpirun (pytorchddp)" if distribution == "pytorchddp" else "torchrun (torch_distributed)"


def _command(train: TrainConfig) -> str:
    return " ".join(flags.to_argv(train)) or "with default settings"


def _time_limit(resolved: Resolved) -> str:
    limit = f"{resolved.options.max_hours:g} h of training"
    if resolved.max_wait_s is not None:
        limit += f", {resolved.max_wait_s / 3600:g} h with waiting for spare machines"
    return limit + "; then SageMaker ends the job"


def _quota_row(resolved: Resolved, quota: Quota) -> str:
    running = "an unknown number" if quota.running is None else str(quota.running)
    return f"{resolved.options.nodes} needed + {running} running <= {quota.limit:g} ({quota.name})"


def price_rows(train: TrainConfig, resolved: Resolved) -> Rows:
    options, hourly = resolved.options, resolved.usd_per_hour
    rows = [(options.instance_type, f"{usd(hourly)} per hour on demand, {_machines(options.nodes)}")]
    if options.spot:
        rows.append(("  spot", f"up to {SPOT_SAVES:.0%} less; SageMaker tells at the end what it was"))
    rows.append(("  expected", _expected(train, resolved)))
    if options.warm_pool_s:
        rows.append(("  warm pool", f"the machines stay {options.warm_pool_s} s for a next job like this, and cost"))
    rows.append(("  at most", f"{usd(resolved.highest_usd)}: {_at_most(resolved)}"))
    rows.append(("not counted", "S3, logs, file systems, traffic; prices are those of us-east-1"))
    return tuple(rows)


def _at_most(resolved: Resolved) -> str:
    pool = resolved.options.warm_pool_s
    kept = f", {pool} s of machines kept" if pool else ""
    return f"{resolved.options.max_hours:g} h until the time limit, {ENDING_S / 60:g} min to end{kept}"


def _machines(count: int) -> str:
    return "with its disk" if count == 1 else f"all {count} with their disks"


def _expected(train: TrainConfig, resolved: Resolved) -> str:
    nodes = resolved.options.nodes
    gpus = resolved.processes // nodes
    return expected(train, resolved.instance, nodes, resolved.usd_per_hour, gpus=gpus, on_ebs=False)


def warnings(resolved: Resolved, facts: Facts, image: Image) -> tuple[str, ...]:
    options, found = resolved.options, list(facts.unknown)
    if text := catalog.warning(resolved.instance):
        found.append(text)
    if resolved.instance.sagemaker_price_source != "list":
        found.append(f"the price of {options.instance_type} is {_source(resolved.instance.sagemaker_price_source)}.")
    for quota in facts.quotas:
        if options.nodes + (quota.running or 0) > quota.limit:
            found.append(
                f"the quota {quota.name!r} is {quota.limit:g}: SageMaker will refuse the job. Ask for more under "
                "Service Quotas, Amazon SageMaker."
            )
    found += warnings_about(options, image, facts.now.date())
    if facts.bucket is not None and not facts.bucket.startswith(f"{TOOLKIT}-"):
        found.append(f"bucket {facts.bucket} is not in infra/iam/sagemaker.json; make sure that the role may use it.")
    for what in _beyond_the_policy(resolved):
        found.append(f"{what} is not in infra/iam/sagemaker.json; make sure that the role may read it.")
    if not options.checkpoints:
        found.append("without checkpoints a job that ends early has lost everything.")
    if options.encrypt_traffic and options.nodes > 1:
        found.append("encrypted traffic between the nodes slows every all-reduce.")
    return tuple(found)


def _beyond_the_policy(resolved: Resolved) -> list[str]:
    """Data and secrets that infra/iam does not grant."""
    ours = re.compile(rf"s3://{TOOLKIT}-[^/]*/data/")
    places = [channel.place for channel in resolved.channels if channel.kind == "s3"]
    beyond = [place for place in places if not ours.match(place + "/")]
    return beyond + secrets.beyond_the_policies(resolved.options.secret)


def _source(name: str) -> str:
    return {
        "capacity_block": "a capacity block's rate",
        "old_list": "from an old price list",
        "estimate": "an estimate: 1.15 times EC2's",
    }.get(name, name)
