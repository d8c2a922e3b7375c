"""Look-ups in AWS before a launch.  Reads only; one function per question."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from launch.aws import pricelist
from launch.aws.batch import QueueFacts
from launch.aws.client import Aws
from launch.aws.instances.facts import find_types
from launch.aws.lookup import (
    NOT_FOUND,
    Lookups,
    by_digest,
    check_bucket,
    content_at,
    describe_role,
    older_stack,
    region_or_some,
    spec_version,
)
from launch.aws.names import SCHEDULER_ROLE, SHARED_SINCE, TOOLKIT, Folder, bucket_of
from launch.aws.refusals import DENIED
from launch.core.catalog import Instance
from launch.core.errors import AwsError
from launch.core.price import CATALOGS
from launch.sagemaker.channels import located, whole_in_s3
from launch.sagemaker.checks import Resolved
from launch.sagemaker.facts import ACROSS_JOBS, Facts, Quota, quotas_of
from launch.sagemaker.images import choose
from launch.sagemaker.names import BACKEND, NOTEBOOK, SESSIONS_BUCKET
from launch.sagemaker.options import SageMakerOptions
from launch.sagemaker.training_job import RUNNING, TrainingJob, read_training_job
from launch.sagemaker.training_jobs import LONGEST_LIFE, Listed, listed_since, look_at, queues, starts_of
from trainer.errors import SettingsError, TrainerError

# The stack of infra/cloudformation, and its outputs.
STACK, ROLE_OUTPUT, BUCKET_OUTPUT = TOOLKIT, "SageMakerRole", "Bucket"
ROLE = f"{TOOLKIT}-sagemaker"
PUSH = "push it: python -m launch.image push --target sagemaker, or give another --image."
METADATA = Path("/opt/ml/metadata/resource-metadata.json")


def look_up(
    aws: Aws,
    resolved: Resolved,
    job: str,
    now: datetime,
    cache: Callable[[str], Path | None] = pricelist.no_cache,
    data_url: str | None = None,
) -> Facts:
    """All facts for the planner.  AwsErrors are not raised but collected in the facts' problems.

    cache: the file in which prices of a region are cached; data_url: a folder in S3 that the training reads.
    """
    try:
        region, caller = aws.region, aws.call("sts", "GetCallerIdentity")
    except TrainerError as problem:
        unknown = "nothing was looked up: account, role, bucket, quota"
        return Facts(region_or_some(aws), now, problems=(problem,), unknown=(unknown,))
    options, account, lookups = resolved.options, str(caller["Account"]), Lookups()
    no_outputs: Mapping[str, str] = {}
    outputs = lookups.optional("the outputs of the CloudFormation stack", lambda: _outputs(aws), no_outputs)
    nothing: tuple[str | None, str] = (None, "")
    role, source = lookups.required(lambda: _role(aws, options.role, outputs, caller), nothing)
    bucket = options.bucket or outputs.get(BUCKET_OUTPUT) or _usual_bucket(aws, account, source)
    lookups.required(lambda: check_bucket(aws, bucket, account), None)
    no_starts: tuple[Listed, ...] = ()
    starts = lookups.required(lambda: starts_of(aws, job, now), no_starts)
    etag = lookups.required(lambda: spec_version(aws, Folder(bucket, job), BACKEND)[1], "")
    no_queue: QueueFacts | None = None
    queue = lookups.required(lambda: queues(aws).facts(options.queue or ""), no_queue) if options.queue else None
    no_quotas: tuple[Quota, ...] = ()
    no_types: dict[str, Instance] = {}
    facts = Facts(
        region,
        now,
        account=account,
        owner=str(caller.get("UserId", "")),
        role=role,
        role_from=source,
        bucket=bucket,
        image=_image(aws, lookups, resolved, now),
        types=lookups.optional("the instance type", lambda: find_types(aws, resolved.instances), no_types),
        quotas=lookups.optional("the quotas", lambda: find_quotas(aws, resolved, now), no_quotas),
        content=content_at(aws, data_url or whole_in_s3(located(resolved.channels, account, region))),
        taken=tuple(start.name for start in starts),
        etag=etag,
        running=lookups.required(lambda: _running_start(aws, job, starts), None),
        queue=queue,
        spent_usd=lookups.optional("what earlier starts cost", lambda: _spent(aws, job, starts, now), None),
        prices=lookups.optional(
            "the region's prices",
            lambda: pricelist.look_up(aws, options.types, now, cache(region)),
            replace(CATALOGS, are_known=False),
        ),
    )
    return replace(facts, problems=tuple(lookups.problems), unknown=tuple(lookups.unknown))


def _outputs(aws: Aws) -> Mapping[str, str]:
    """The outputs of the toolkit's stack; empty if there is none."""
    try:
        (stack,) = aws.call("cloudformation", "DescribeStacks", {"StackName": STACK})["Stacks"]
    except AwsError as error:
        if error.aws_code == "ValidationError":  # CloudFormation's code for a missing stack
            return {}
        raise
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def stack_without_sources(aws: Aws, facts: Facts, options: SageMakerOptions) -> str:
    """The region of the account's stack, if it is too old for its role to read a script's source; else "".

    The version is a tag of another role of the stack that launchers may read: see launch.aws.names.  If it cannot be
    read, SageMaker rejects such a job: see start.py.
    """
    has_our_bucket = options.bucket is None and (facts.bucket or "").startswith(f"{TOOLKIT}-")
    if not has_our_bucket or not (facts.role or "").endswith(f":role/{ROLE}"):
        return ""
    try:
        role = aws.call("iam", "GetRole", {"RoleName": SCHEDULER_ROLE})["Role"]
    except TrainerError:
        return ""
    region, version = older_stack(role)
    return region if version < SHARED_SINCE else ""


def _image(aws: Aws, lookups: Lookups, resolved: Resolved, now: datetime) -> str | None:
    """The image pinned by its digest; None if that cannot be looked up."""
    image = choose(resolved.options, resolved.instances, aws.region, now.date())
    remedy = "AWS may not have it in this region: give another --image." if image.known else PUSH
    try:
        return by_digest(aws, image.uri, remedy)
    except AwsError as error:
        if error.aws_code in NOT_FOUND:
            lookups.problems.append(error)
        else:
            why = str(error).rstrip(".")
            lookups.unknown.append(
                f"the image is known by its tag only, as its digest could not be looked up ({why}): if the tag is "
                "moved, as AWS does with each patch, the job runs something else; pin it with --image NAME@sha256:..."
            )
        return None


def _usual_bucket(aws: Aws, account: str, role_from: str) -> str:
    """The toolkit's bucket; in a notebook without one, the bucket of SageMaker's sessions, which its role may use."""
    ours = bucket_of(account, aws.region)
    if role_from != NOTEBOOK:
        return ours
    try:
        check_bucket(aws, ours, account)
    except AwsError:
        return f"{SESSIONS_BUCKET}{aws.region}-{account}"
    return ours


def _role(aws: Aws, wanted: str | None, outputs: Mapping[str, str], caller: Mapping[str, Any]) -> tuple[str, str]:
    """The ARN of the execution role and its source: the option, the stack, the notebook, or the default name."""
    if wanted is not None:
        return (wanted, "--role") if wanted.startswith("arn:") else (_arn_of(aws, wanted), "--role")
    if ROLE_OUTPUT in outputs:
        role = outputs[ROLE_OUTPUT]
        return (role if role.startswith("arn:") else _arn_of(aws, role)), f"stack {STACK}"
    own = _role_of_notebook(aws, str(caller["Arn"]))
    if own is not None:
        return own, NOTEBOOK
    return _arn_of(aws, ROLE), "its name"


def _running_start(aws: Aws, job: str, starts: Sequence[Listed]) -> TrainingJob | None:
    """The running start of `job`.  Training jobs of such a name without the toolkit's tags do not count."""
    described = (look_at(aws, start) for start in starts if start.is_alive)
    return next((one for one in described if one.is_start and one.job == job and not one.is_over), None)


def _spent(aws: Aws, job: str, starts: Sequence[Listed], now: datetime) -> float | None:
    """USD of the newest ended starts of `job`, including one that was not followed to its end; None without any."""
    described = [look_at(aws, start) for start in starts[:MOST_DESCRIBED]]
    own = [one for one in described if one.is_start and one.job == job]
    return sum(one.cost(now) for one in own if one.is_over) if own else None


def _role_of_notebook(aws: Aws, arn: str) -> str | None:
    """The role's ARN if the caller is a SageMaker notebook, as its session name shows."""
    match = re.fullmatch(r"arn:(?P<partition>[^:]+):sts::(?P<account>\d+):assumed-role/(?P<name>[^/]+)/SageMaker", arn)
    if match is None:
        return None
    studios = _role_of_studio()
    if studios is not None:
        return studios
    try:
        return _arn_of(aws, match["name"])
    except AwsError as error:
        if error.aws_code not in DENIED:
            raise
    # A notebook's role can rarely read itself in IAM; the console creates such roles under this path.
    path = "service-role/" if match["name"].startswith("AmazonSageMaker-ExecutionRole") else ""
    return f"arn:{match['partition']}:iam::{match['account']}:role/{path}{match['name']}"


def _role_of_studio() -> str | None:
    """The role in the file that SageMaker Studio writes for its apps."""
    try:
        role: str | None = json.loads(METADATA.read_text()).get("ExecutionRoleArn")
    except (OSError, ValueError):
        return None
    return role


def _arn_of(aws: Aws, name: str) -> str:
    return str(describe_role(aws, name, "--role")["Arn"])


def quota_names(resolved: Resolved) -> list[str]:
    """The names of the job's quotas in Service Quotas."""
    options = resolved.options
    types = options.types if options.training_plan is None else options.types[1:]  # a training plan has separate quotas
    uses = [f"{'spot ' if options.spot else ''}training job"] + ["training warm pool"] * bool(options.warm_pool_s)
    return [f"{name} for {use} usage" for use in uses for name in types]


# Account-wide quotas, as ACROSS_JOBS; the latter two are separate for spot.  A new account has 432,000 s, 20 and 4.
# https://docs.aws.amazon.com/sagemaker/latest/dg/feature-store-feature-processor-quotas.html has the first two.
LONGEST_RUN = "Longest run time for a training job"
PER_JOB = "Maximum number of instances per {}training job"


def find_quotas(aws: Aws, resolved: Resolved, now: datetime) -> tuple[Quota, ...]:
    """The quotas of the instance type and of the account; Service Quotas can only be searched by name."""
    listed = aws.pages("service-quotas", "ListServiceQuotas", "Quotas", {"ServiceCode": "sagemaker", "MaxResults": 100})
    found = {quota["QuotaName"]: quota for quota in listed}
    names = quota_names(resolved)
    for name in names:
        if name not in found:
            raise SettingsError(f"Service Quotas has no value for {name!r} in this account.")
    running = _running(aws, resolved, now)
    options, market = resolved.options, "spot " if resolved.options.spot else ""
    across_jobs = ACROSS_JOBS.format(market)
    general = [
        Quota(LONGEST_RUN, 0, 0, resolved.max_run_s, "seconds", "--max-hours", is_shared=False),
        Quota(PER_JOB.format(market), 0, 0, options.nodes, is_shared=False),
        Quota(across_jobs, 0, _of(running, across_jobs), options.nodes),
    ]
    of_types = [Quota(name, 0, _of(running, name), options.nodes) for name in names]
    return tuple(
        replace(quota, limit=float(found[quota.name]["Value"]), code=found[quota.name]["QuotaCode"])
        for quota in (*of_types, *general)
        if quota.name in found
    )


# Each running job takes a call; with more jobs than this, the sum stays unknown.
MOST_DESCRIBED = 20


def _of(running: Mapping[str, int] | None, quota: str) -> int | None:
    return None if running is None else running.get(quota, 0)


def _running(aws: Aws, resolved: Resolved, now: datetime) -> Mapping[str, int] | None:
    """Instances in running training jobs of the same market, by the quotas that they count against.

    None if there are too many jobs.  Jobs in training plans have separate quotas; only jobs with a warm pool count
    against its quota: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools-resource-limits.html
    """
    listed = listed_since(aws, now - LONGEST_LIFE, {"StatusEquals": RUNNING})
    if len(listed) > MOST_DESCRIBED:
        return None
    instances: Counter[str] = Counter()
    for row in listed:
        job = aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": row["TrainingJobName"]})
        described = read_training_job(job, {}, aws.region)
        if described.is_spot == resolved.options.spot:
            instances += Counter(dict.fromkeys(quotas_of(described), described.nodes))
    return instances
