"""Job + facts -> the plan: the estimator's arguments, every request in order, price, warnings, problems.  Pure.

`capture` returns the request that the SDK makes of the arguments; it sends nothing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from launch.core.errors import NotSetUp
from launch.core.job import Job
from launch.core.names import TIME, Folder, bucket_of
from launch.core.plan import Plan, Request
from launch.core.pricelist import no_price
from launch.sagemaker import explain
from launch.sagemaker.bundle import Bundle, make_bundle
from launch.sagemaker.checks import Resolved, check_price
from launch.sagemaker.estimator import Estimator, estimator_of, hyperparameters, source_key
from launch.sagemaker.facts import Facts
from launch.sagemaker.images import choose, requirements_of
from launch.sagemaker.names import BACKEND, number_of, start_name
from launch.sagemaker.options import SageMakerOptions
from launch.sagemaker.sdk import OPERATION
from launch.sagemaker.training_job import TrainingJob
from trainer.errors import SettingsError, TrainerError
from trainer.settings import flags

Capture = Callable[[Estimator, str], dict[str, Any]]


@dataclass(frozen=True)
class Launch:
    """What performing a plan takes beyond its requests.  running: the training job that exists already."""

    resolved: Resolved
    folder: Folder
    region: str
    estimator: Estimator
    running: TrainingJob | None


SageMakerPlan = Plan[Launch]


def plan(job: Job[SageMakerOptions], resolved: Resolved, name: str, facts: Facts, capture: Capture) -> SageMakerPlan:
    """The plan for `job`, called `name`.  Raises SettingsError; what AWS lacks is among its problems."""
    folder = Folder(facts.bucket or resolved.options.bucket or bucket_of("<account>", facts.region), name)
    running, resolved = facts.running, replace(resolved, prices=facts.prices)
    image = choose(resolved.options, resolved.instance, facts.region)
    bundle = make_bundle(requirements_of(resolved.options, image, job.train))
    start = running.name if running else _next_name(name, facts)
    estimator = estimator_of(resolved, job.train, start, folder, image, bundle, facts)
    request, problems = _captured(estimator, facts.region, capture)
    steps = () if running else (_spec(job, folder, facts), _source(folder, bundle), *_create(request))
    return Plan(
        title=_title(resolved, name, estimator, running),
        payload=Launch(resolved, folder, facts.region, estimator, running),
        facts=explain.facts_of(resolved, facts, job.train, folder, estimator, bundle),
        steps=steps,
        quotes=(explain.quote_of(job.train, resolved),),
        not_counted=explain.not_counted(resolved),
        warnings=explain.warnings(resolved, facts, image),
        problems=(*facts.problems, *problems, *_differences(job, resolved, running), *_too_expensive(resolved, facts)),
        arguments=(("the estimator, sagemaker.pytorch.PyTorch, which makes the last request:", estimator.arguments),),
    )


def _title(resolved: Resolved, name: str, estimator: Estimator, running: TrainingJob | None) -> str:
    title = f"{resolved.options.nodes} x {resolved.options.instance_type} on SageMaker, job {name}"
    if running is not None:
        return f"{title}: already running as {running.name}; nothing to start"
    return title if estimator.name == name else f"{title}, started again as {estimator.name}"


def _next_name(name: str, facts: Facts) -> str:
    """The name of the next start: SageMaker uses a name once."""
    numbers = [number_of(taken, name) or 0 for taken in facts.taken]
    return start_name(name, max(numbers, default=0) + 1)


def _differences(
    job: Job[SageMakerOptions], resolved: Resolved, running: TrainingJob | None
) -> tuple[TrainerError, ...]:
    """Why the running start does not fit the settings, if so."""
    if running is None:
        return ()
    options = resolved.options
    wanted = (options.instance_type, options.nodes, options.spot, hyperparameters(job.train))
    if wanted == (running.instance_type, running.nodes, running.is_spot, running.settings):
        return ()
    sentence = f"job {running.job} is running with other settings; choose another --job-name, or stop it first."
    return (SettingsError(sentence),)


def _too_expensive(resolved: Resolved, facts: Facts) -> tuple[TrainerError, ...]:
    """Whether the job may cost more than its limit in the region where it runs."""
    limit = resolved.options.max_usd
    if limit is not None and not facts.prices.are_known and facts.running is None:
        return (no_price(limit, facts.region),)
    try:
        check_price(resolved)
    except SettingsError as error:
        return (error,)
    return ()


def _captured(
    estimator: Estimator, region: str, capture: Capture
) -> tuple[Mapping[str, Any] | None, tuple[TrainerError, ...]]:
    try:
        return capture(estimator, region), ()
    except NotSetUp as problem:
        return None, (problem,)


def _spec(job: Job[SageMakerOptions], folder: Folder, facts: Facts) -> Request:
    content = {
        "job": folder.job,
        "backend": BACKEND,
        "region": facts.region,
        "started": facts.now.strftime(TIME),
        "train": flags.to_argv(job.train),
        "where": job.where.model_dump(mode="json"),
    }
    body = json.dumps(content, indent=2)
    params = {"Bucket": folder.bucket, "Key": folder.spec, "Body": body}
    return Request("s3", "PutObject", params, "write the job's settings")


def _source(folder: Folder, bundle: Bundle) -> Request:
    params = {"Bucket": folder.bucket, "Key": source_key(folder, bundle), "Body": bundle.content}
    return Request("s3", "PutObject", params, "upload the trainer for the container")


def _create(request: Mapping[str, Any] | None) -> tuple[Request, ...]:
    if request is None:
        return ()
    return (Request("sagemaker", OPERATION, request, "start the job, through the SDK's estimator"),)
