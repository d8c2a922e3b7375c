"""The facts, price and warnings of a plan.  Pure."""

import re
from collections.abc import Iterator

from launch.aws import upload
from launch.aws.containers import Image
from launch.aws.names import TOOLKIT
from launch.core import catalog, earlier, secrets
from launch.core.plan import Fact, Need, fact_of
from launch.core.price import CATALOGS
from launch.core.quote import Quote, images_in
from launch.core.training.base import Training
from launch.sagemaker.bundle import Bundle
from launch.sagemaker.checks import STOP_RETRY_S, Resolved
from launch.sagemaker.description import Description
from launch.sagemaker.facts import Facts, Quota, quotas_of
from launch.sagemaker.images import warnings_about
from launch.sagemaker.names import NOTEBOOK, SESSIONS_BUCKET
from launch.sagemaker.options import SageMakerOptions

SPOT_SAVES = 0.9  # at most, by SageMaker's documentation

# Billing begins at TrainingStartTime, before the download:
# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html
COPIED = (
    "the data are copied from S3 first, which is billed and not in the expected time; --input-mode FastFile reads "
    "them as it trains"
)

NOT_COUNTED = "S3, logs, file systems, traffic"

# https://docs.aws.amazon.com/sagemaker/latest/dg/reserve-capacity-with-training-plans.html
BY_PLAN = ("p5e.", "p5en.", "p6-", "p6e-")

# The repositories of infra/iam/sagemaker.json.
_PULLED = re.compile(rf"/(pytorch|huggingface-pytorch-training|{TOOLKIT})[^/]*$")

STARTERS = {"pytorchddp": "mpirun (pytorchddp)", "torch_distributed": "torchrun (torch_distributed)"}
PRICE_SOURCES = {
    "capacity_block": "a capacity block's rate",
    "old_list": "from an old price list",
    "estimate": "an estimate: 1.15 times EC2's",
}


def facts_of(
    resolved: Resolved, facts: Facts, train: Training, description: Description, bundle: Bundle, image: Image
) -> tuple[Fact, ...]:
    """The facts on which the plan is based."""
    options, tags, role = resolved.options, dict(description.tags), description.role
    source = {"files": len(bundle.names), "bytes": len(bundle.content), "sha256": bundle.digest}
    training = train.shown or "with default settings"
    starter = STARTERS[options.distribution]
    return (
        Fact("account", facts.account, f"{facts.account or '<unknown>'}, {facts.region}"),
        Fact("region", facts.region, ()),
        Fact("processes", resolved.processes, ()),
        Fact("training", list(train.words), f"{resolved.processes} processes by {starter}: {training}"),
        Fact("image", description.image, image.uri + _digest_of(description.image)),
        Fact("role", role, role + (f" (from {facts.role_from})" if facts.role_from else ""), is_detail=True),
        Fact(
            "data",
            {channel.name: channel.uri for channel in resolved.channels},
            _data(resolved) + (f": {facts.content.in_words}" if facts.content else ""),
        ),
        Fact("job_folder", description.folder.uri, is_detail=True),
        Fact("source", source, "{files} files, {bytes:,} bytes, SHA-256 {sha256:.16}".format(**source), is_detail=True),
        Fact("tags", tags, ", ".join(f"{key}={value}" for key, value in tags.items()), is_detail=True),
        *_limits(resolved),
        *((facts.queue.fact,) if facts.queue else ()),
        *_trackers(resolved.options),
        *upload.facts(train, facts.earlier, facts.is_sent),
        *secrets.facts(options.secret),
        Fact("quotas", *_quotas(facts), label="quota", is_detail=True),
        fact_of([_need(quota, facts) for quota in facts.quotas if quota.is_shared]),
    )


def _need(quota: Quota, facts: Facts) -> Need:
    own = facts.running if quota.running else None
    held = own.nodes if own and quota.name in quotas_of(own) else 0
    return Need(quota.name, quota.needed, quota.running or 0, quota.limit, held)


def _digest_of(uri: str) -> str:
    """The digest that pins an image, as text; empty for a tag alone."""
    _, at, digest = uri.rpartition("@")
    return f" ({digest:.19})" if at else ""


def _data(resolved: Resolved) -> str:
    if not resolved.channels:
        return "in the image, or downloaded"
    places = ", ".join(f"{channel.name}: {channel.uri}" for channel in resolved.channels)
    has_s3 = any(channel.kind == "s3" for channel in resolved.channels)
    return f"{places} ({resolved.options.input_mode})" if has_s3 else places


def _limits(resolved: Resolved) -> Iterator[Fact]:
    hours = resolved.options.max_hours
    text = f"{hours:g} h of training"
    if resolved.max_wait_s is not None:
        wait_h = resolved.max_wait_s / 3600
        text += f", {wait_h:g} h including waiting for spot capacity"
        yield Fact("wait_limit_h", wait_h, ())
    yield Fact("time_limit_h", hours, f"{text}; then SageMaker ends the job", label="time limit")


def _trackers(options: SageMakerOptions) -> Iterator[Fact]:
    if options.mlflow_server is not None:
        yield Fact("mlflow_server", options.mlflow_server, label="MLflow")
    if options.experiment is not None:
        yield Fact("experiment", options.experiment, f"{options.experiment}, which must exist in SageMaker Experiments")


def _quotas(facts: Facts) -> tuple[list[dict[str, object]], tuple[str, ...]]:
    """The values and the texts of the fact about quotas."""
    values = list[dict[str, object]]()
    texts = list[str]()
    for quota in facts.quotas:
        values.append({"name": quota.name, "needed": quota.needed, "running": quota.running, "limit": quota.limit})
        texts.append(f"{quota.sum} {'>' if quota.is_exceeded else '<='} {quota.limit:,.0f} ({quota.name})")
    return values, tuple(texts)


def quote_of(train: Training, resolved: Resolved, facts: Facts) -> Quote:
    """The price of the job.  SageMaker publishes no spot prices."""
    options, instance = resolved.options, resolved.instance
    expected, why_unknown = None, f"not known: {resolved.type} is not in the catalog"
    if instance.is_known:
        expected, why_unknown = train.expect(
            instance, options.nodes, gpus=resolved.processes // options.nodes, on_ebs=False,
            images=images_in(facts.content),
        )  # fmt: skip
    hourly = resolved.usd_per_hour if resolved.is_priced else None
    quote = Quote(
        instance=resolved.type,
        nodes=options.nodes,
        market="spot" if options.spot else "on demand",
        usd_per_hour=None if options.spot else hourly,
        on_demand_usd_per_hour=hourly,
        most_usd=resolved.most_usd if resolved.is_priced else None,
        most_s=resolved.most_s,
        forecast=expected,
        why_unknown=why_unknown,
        notes=_notes(resolved, is_expected=expected is not None),
    )
    setting = earlier.setting_of(train, f"{options.nodes} x {resolved.type}", options.model_dump(mode="json"))
    return earlier.with_time(quote, train, setting, facts.earlier, has_wait=True)


def _notes(resolved: Resolved, *, is_expected: bool) -> tuple[str, ...]:
    """The notes under the price.  is_expected: whether there is a forecast."""
    options = resolved.options
    notes = [f"the maximum includes {STOP_RETRY_S / 60:g} min for SageMaker to end the job"]
    if resolved.attempts > 1:
        notes[0] += f", in each of {resolved.attempts} attempts; --max-restarts 0 makes it one"
    if options.warm_pool_s:
        notes[0] += f" and {options.warm_pool_s} s in the warm pool, where the instances wait for the next job"
    if options.spot:
        notes.append(f"spot costs up to {SPOT_SAVES:.0%} less; SageMaker reports the saving at the end")
    if is_expected and options.input_mode == "File" and any(one.kind == "s3" for one in resolved.channels):
        notes.append(COPIED)
    if options.training_plan is not None and resolved.type == options.types[0]:
        notes.append("a training plan is paid for when it is bought: its hours cost nothing more")
    return tuple(notes)


def not_counted(resolved: Resolved) -> str:
    source = "those of us-east-1" if resolved.prices == CATALOGS else resolved.prices.source
    return f"{NOT_COUNTED}; prices are {source}"


def warnings(resolved: Resolved, facts: Facts, image: Image, train: Training) -> tuple[str, ...]:
    """Warnings for the user before the launch."""
    return (
        *facts.unknown,
        *_about_the_types(resolved),
        *_about_quotas(facts),
        *_about_queue(facts),
        *warnings_about(resolved.options, image, facts.now.date()),
        *_about_permissions(resolved, facts, image),
        *_about_options(resolved, train),
    )


def _about_the_types(resolved: Resolved) -> Iterator[str]:
    for instance in resolved.instances:
        yield from _about_the_type(resolved.on(instance))


def _about_the_type(resolved: Resolved) -> Iterator[str]:
    instance = resolved.instance
    if not instance.is_known:
        yield (
            f"{resolved.type} is not in the catalog, and was not looked up: one GPU is assumed, and its price is not "
            "known; if SageMaker has no such type, it refuses the job."
        )
        if resolved.options.kms_key is not None:
            yield f"if {resolved.type} has disks of its own, SageMaker takes no key for them: then leave --kms-key out."
    if text := catalog.warning(instance):
        yield text
    source = instance.sagemaker_price_source
    if source != "list" and not resolved.prices.usd_per_hour:
        yield f"the price of {resolved.type} is {PRICE_SOURCES.get(source, source)}."
    if instance.name.startswith(BY_PLAN) and resolved.options.training_plan is None:
        yield f"{resolved.type} is mostly sold by training plans; if there is no capacity, buy one for --training-plan."


def _about_quotas(facts: Facts) -> Iterator[str]:
    if facts.running is not None:  # nothing is started, and the use is this job's own
        return
    for quota in facts.quotas:
        # What other jobs use now may be free when the job's turn comes.
        if quota.is_exceeded and (facts.queue is None or quota.needed > quota.limit):
            unit = "" if quota.unit == "instances" else f" {quota.unit}"
            yield (
                f"the quota {quota.name!r} is {quota.limit:,.0f}{unit}: SageMaker will refuse the job.  Lower "
                f"{quota.lower}, or ask for more with\n  {quota.increase(facts.region)}"
            )


def _about_queue(facts: Facts) -> Iterator[str]:
    """Quotas below the queue's limit: Batch starts jobs up to that, and SageMaker refuses those beyond the quota."""
    queue = facts.queue
    for quota in facts.quotas if queue and facts.running is None else ():
        if queue and quota.unit == "instances" and quota.is_shared and quota.needed <= quota.limit < queue.most:
            yield (
                f"queue {queue.name} starts jobs up to {queue.most} instances, and the quota {quota.name!r} is "
                f"{quota.limit:,.0f}: jobs beyond it fail.  Lower the queue's limit: python -m launch.infra up --queue "
                f"{queue.name}:{quota.limit:.0f}"
            )


def _about_permissions(resolved: Resolved, facts: Facts, image: Image) -> Iterator[str]:
    is_sessions = facts.role_from == NOTEBOOK and (facts.bucket or "").startswith(SESSIONS_BUCKET)
    if facts.bucket is not None and not facts.bucket.startswith(f"{TOOLKIT}-") and not is_sessions:
        yield f"bucket {facts.bucket} is not in infra/iam/sagemaker.json; make sure that the role may use it."
    if not image.known and not _PULLED.search(image.uri):
        yield f"image {image.uri} is not in infra/iam/sagemaker.json; make sure that the role may pull it."
    for place in _beyond_the_policy(resolved):
        yield f"{place} is not in infra/iam/sagemaker.json; make sure that the role may read it."


def _about_options(resolved: Resolved, train: Training) -> Iterator[str]:
    options = resolved.options
    if options.queue is not None and (options.spot or len(options.types) > 1):
        yield "AWS does not document how a queue counts and repeats jobs on spot, or of several types."
    if not options.checkpoints and train.digest:
        yield (
            "without checkpoints nothing that the script writes to $DDP_RUN_DIR is kept but metrics.jsonl and "
            "outcome.json, and a job that ends early has lost everything."
        )
    elif not options.checkpoints:
        yield "without checkpoints a job that ends early has lost everything."
    if options.encrypt_traffic and options.nodes > 1:
        yield "encrypted traffic between the nodes slows every all-reduce."


def _beyond_the_policy(resolved: Resolved) -> list[str]:
    """Data and secrets to which infra/iam grants no access."""
    ours = re.compile(rf"s3://{TOOLKIT}-[^/]*/data/")
    places = [channel.place for channel in resolved.channels if channel.kind == "s3"]
    beyond = [place for place in places if not ours.match(place + "/")]
    return beyond + secrets.beyond_the_policies(resolved.options.secret)
