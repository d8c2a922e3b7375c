"""Job + facts -> the plan: description, every request in order, price, warnings and problems.  Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launch.aws import upload
from launch.aws.lookup import unreadable
from launch.aws.names import STARTED_TAG, TIME, Folder, bucket_of
from launch.aws.pricelist import no_price
from launch.aws.upload import edited
from launch.core.job import Job
from launch.core.plan import Plan, Request, put_once, unless_changed
from launch.core.quote import ended_early, misfits
from launch.sagemaker import explain, register, sdk
from launch.sagemaker.bundle import Bundle, make_bundle, requirements_of, tracking_of
from launch.sagemaker.checks import Resolved, check_price
from launch.sagemaker.description import Description, describe, source_key
from launch.sagemaker.facts import Facts
from launch.sagemaker.images import choose
from launch.sagemaker.names import ATTEMPT, BACKEND, number_of, start_name
from launch.sagemaker.options import SageMakerOptions, Through
from launch.sagemaker.request import OPERATION, SUBMIT, request_of, submission, too_long
from launch.sagemaker.training_job import TrainingJob
from trainer.contract import SAGEMAKER_ARCHIVE, SAGEMAKER_CHANNEL, SAGEMAKER_HYPERPARAMETER, SAGEMAKER_MODEL
from trainer.errors import SettingsError, TrainerError

# The archive of a script's source in the container, and the folder in which it is unpacked.
ARCHIVE = Path(SAGEMAKER_MODEL.parent / "input/data" / SAGEMAKER_CHANNEL / SAGEMAKER_ARCHIVE)
WORK = Path(SAGEMAKER_MODEL.parent / "source")


@dataclass(frozen=True)
class Launch:
    """What performing a plan needs in addition to its requests."""

    resolved: Resolved
    folder: Folder
    region: str
    description: Description
    through: Through
    running: TrainingJob | None  # the existing training job

    @property
    def queue(self) -> str | None:
        """The queue that it goes through."""
        return self.resolved.options.queue


SageMakerPlan = Plan[Launch]


def plan(job: Job[SageMakerOptions], resolved: Resolved, name: str, facts: Facts, through: Through) -> SageMakerPlan:
    """The plan for `job`, called `name`; its problems include missing resources.  Raises SettingsError."""
    folder = Folder(facts.bucket or resolved.options.bucket or bucket_of("<account>", facts.region), name)
    job = replace(job, train=job.train.called(name).sent(ARCHIVE, WORK))
    running, resolved = facts.running, replace(resolved, prices=facts.prices)
    if resolved.instance.is_gpu:
        job = replace(job, train=job.train.on_gpus())
    image = choose(resolved.options, resolved.instances, facts.region, facts.now.date())
    bundle = make_bundle(requirements_of(resolved.options, image, job.train), tracking_of(resolved.options, job.train))
    start = running.start if running else _next_name(name, facts)
    description = describe(resolved, job.train, start, folder, image, bundle, facts)
    # Upload the source first: if that is rejected, nothing has started, and the job's name is still free.
    code = (*_script(job, folder, facts), _source(folder, bundle))
    create = _create(description, through, facts)
    steps = () if running else (*code, _spec(job, folder, start, facts), create)
    quotes = tuple(explain.quote_of(job.train, resolved.on(instance), facts) for instance in resolved.instances)
    return Plan(
        title=_title(resolved, name, start, running),
        payload=Launch(resolved, folder, facts.region, description, through, running),
        facts=explain.facts_of(resolved, facts, job.train, description, bundle, image),
        steps=steps,
        quotes=quotes,
        not_counted=explain.not_counted(resolved),
        warnings=(*job.notes, *explain.warnings(resolved, facts, image, job.train), *ended_early(quotes)),
        problems=(
            *facts.problems,
            *_differences(job, resolved, running),
            *_unreadable_source(facts),
            *_too_expensive(resolved, facts),
            *_never_its_turn(create, resolved, facts),
            *(() if running else misfits(quotes, anyway=job.where.anyway)),
        ),
        arguments=_arguments(description, through),
        later=_later(resolved, description),
        spent_usd=facts.spent_usd,
    )


def _title(resolved: Resolved, name: str, start: str, running: TrainingJob | None) -> str:
    title = f"{resolved.options.nodes} x {resolved.options.instance_type} on SageMaker, job {name}"
    if running is not None:
        how = "in the queue" if running.waits else "running"
        return f"{title}: already {how} as {running.start}; nothing to start, --new starts another"
    return title if start == name else f"{title}, started again as {start}"


def _next_name(name: str, facts: Facts) -> str:
    """The name of the next start, as SageMaker accepts a name only once."""
    numbers = [number_of(taken, name) or 0 for taken in facts.taken]
    return start_name(name, max(numbers, default=0) + 1)


def _later(resolved: Resolved, description: Description) -> tuple[tuple[str, tuple[Request, ...]], ...]:
    """The requests of --register after the training."""
    group, name = resolved.options.register, description.name
    if group is None:
        return ()
    of = f"<{ATTEMPT}...>" if resolved.options.queue else name  # Batch names the training job
    model, token = f"{description.output}/{of}/output/model.tar.gz", description.tags[STARTED_TAG]
    return ((register.HEADING, register.requests(group, name, description.region, model, token)),)


def _differences(
    job: Job[SageMakerOptions], resolved: Resolved, running: TrainingJob | None
) -> tuple[TrainerError, ...]:
    """A problem if the running start has other settings."""
    if running is None:
        return ()
    options = resolved.options
    wanted = (options.nodes, options.spot, job.train.hyperparameters)
    is_one_of_them = running.instance_type in (*options.types, " or ".join(options.types))
    if is_one_of_them and wanted == (running.nodes, running.is_spot, running.settings):
        return ()
    here, there = (
        " ".join(settings.get(SAGEMAKER_HYPERPARAMETER, ()))
        for settings in (job.train.hyperparameters, running.settings)
    )
    why = edited(there, here)
    how = f"already, and {why}" if why else "with other settings"
    sentence = f"job {running.job} is running {how}; choose another --job-name, or stop it first."
    return (SettingsError(sentence),)


def _unreadable_source(facts: Facts) -> tuple[TrainerError, ...]:
    """A problem if the job could not read its script's source; a running one has already read it."""
    return (unreadable("training jobs", facts.old_stack),) if facts.old_stack and facts.running is None else ()


def _too_expensive(resolved: Resolved, facts: Facts) -> tuple[TrainerError, ...]:
    """A problem if the job may cost more than --max-usd at the region's prices."""
    limit = resolved.options.max_usd
    if limit is not None and not facts.prices.are_known and facts.running is None:
        return (no_price(limit, facts.region),)
    try:
        check_price(resolved)
    except SettingsError as error:
        return (error,)
    return ()


def _never_its_turn(create: Request, resolved: Resolved, facts: Facts) -> Iterator[TrainerError]:
    """Problems of a job that its queue would not take, or never start."""
    options, queue = resolved.options, facts.queue
    if options.queue is None or facts.running is not None:
        return
    if error := too_long(create.params):
        yield error
    if queue is None:
        return
    if options.nodes > queue.most:
        yield SettingsError(
            f"--nodes {options.nodes}: queue {queue.name} has {queue.most} instances; give fewer, or raise its limit: "
            f"python -m launch.infra up --queue {queue.name}:{options.nodes}"
        )
    if options.share is not None and not queue.has_shares:
        yield SettingsError(f"--share {options.share}: queue {queue.name} has no scheduling policy; leave it out.")


def _create(description: Description, through: Through, facts: Facts) -> Request:
    queue = description.options.queue
    if queue is not None:
        has_shares = facts.queue is None or facts.queue.has_shares
        params = submission(description, has_shares=has_shares)
        return Request("batch", SUBMIT, params, f"put the job into queue {queue}")
    why = "start the job, through the SDK's estimator" if through == "estimator" else "start the job"
    return Request("sagemaker", OPERATION, request_of(description), why)


def _arguments(description: Description, through: Through) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    return ((sdk.HEADING, sdk.arguments(description)),) if through == "estimator" else ()


def _spec(job: Job[SageMakerOptions], folder: Folder, start: str, facts: Facts) -> Request:
    content = {
        "job": folder.job,
        "backend": BACKEND,
        "region": facts.region,
        "started": facts.now.strftime(TIME),
        "starts": number_of(start, folder.job) or 1,
        "train": list(job.train.words),
        "where": job.where.model_dump(mode="json"),
    }
    body = json.dumps(content, indent=2)
    params = {"Bucket": folder.bucket, "Key": folder.spec, "Body": body}
    words = "Another command has just started a job of this name: see its status, or choose another --job-name."
    put = Request("s3", "PutObject", params, "write the job's settings", if_taken=words)
    return unless_changed(put, facts.etag)


def _script(job: Job[SageMakerOptions], folder: Folder, facts: Facts) -> tuple[Request, ...]:
    """The request to upload the user's script, unless it is in S3 already."""
    source = job.train.source
    if source is None or facts.is_sent:
        return ()
    return (upload.send(folder.bucket, upload.key_of(source.digest, facts.now), source),)


def _source(folder: Folder, bundle: Bundle) -> Request:
    return put_once(folder.bucket, source_key(folder, bundle), bundle.content, "upload the trainer for the container")
