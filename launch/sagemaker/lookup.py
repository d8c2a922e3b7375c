"""What must be asked of AWS before a launch.  Reads only; each question is one function."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from launch.core.aws import DENIED, Aws
from launch.core.errors import AwsError
from launch.core.lookup import Lookups, check_bucket, missing, region_or_some, spec_of
from launch.core.names import TOOLKIT, Folder, bucket_of
from launch.sagemaker.checks import Resolved
from launch.sagemaker.facts import Facts, Quota
from launch.sagemaker.names import BACKEND
from launch.sagemaker.runs import RUNNING, Run, Seen, describe, runs_of
from trainer.errors import SettingsError, TrainerError

# The stack that infra/cloudformation makes, and what it tells.
STACK, ROLE_OUTPUT, BUCKET_OUTPUT = TOOLKIT, "SageMakerRole", "Bucket"
ROLE = f"{TOOLKIT}-sagemaker"
METADATA = Path("/opt/ml/metadata/resource-metadata.json")


def look_up(aws: Aws, resolved: Resolved, job: str, now: datetime) -> Facts:
    """All facts for the planner.  Raises nothing of AWS's: what failed is among the problems."""
    try:
        region, caller = aws.region, aws.call("sts", "GetCallerIdentity")
    except TrainerError as problem:
        unknown = "without an answer from AWS, nothing was looked up: account, role, bucket, quota"
        return Facts(region_or_some(aws), now, problems=(problem,), unknown=(unknown,))
    options, account, lookups = resolved.options, str(caller["Account"]), Lookups()
    no_outputs: Mapping[str, str] = {}
    outputs = lookups.optional("the outputs of the CloudFormation stack", lambda: _outputs(aws), no_outputs)
    bucket = options.bucket or outputs.get(BUCKET_OUTPUT) or bucket_of(account, region)
    nothing: tuple[str | None, str] = (None, "")
    role, source = lookups.required(lambda: _role(aws, options.role, outputs, caller), nothing)
    lookups.required(lambda: check_bucket(aws, bucket, account), None)
    no_runs: tuple[Seen, ...] = ()
    runs = lookups.required(lambda: runs_of(aws, job), no_runs)
    lookups.required(lambda: spec_of(aws, Folder(bucket, job), BACKEND), None)
    no_quotas: tuple[Quota, ...] = ()
    facts = Facts(
        region,
        now,
        account=account,
        role=role,
        role_from=source,
        bucket=bucket,
        quotas=lookups.optional("the quotas", lambda: _quotas(aws, resolved), no_quotas),
        taken=tuple(run.name for run in runs),
        running=lookups.required(lambda: _running_start(aws, job, runs), None),
    )
    problems = {str(problem): problem for problem in lookups.problems}
    return replace(facts, problems=tuple(problems.values()), unknown=tuple(lookups.unknown))


def _outputs(aws: Aws) -> Mapping[str, str]:
    """What the toolkit's own stack made; nothing where there is none."""
    try:
        (stack,) = aws.call("cloudformation", "DescribeStacks", {"StackName": STACK})["Stacks"]
    except AwsError as error:
        if error.aws_code == "ValidationError":  # how CloudFormation says that it does not exist
            return {}
        raise
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def _role(aws: Aws, wanted: str | None, outputs: Mapping[str, str], caller: Mapping[str, Any]) -> tuple[str, str]:
    """The ARN of what the job may do, and where it was found: the option, infra's stack, a notebook's own, by name."""
    if wanted is not None:
        return (wanted, "--role") if wanted.startswith("arn:") else (_arn_of(aws, wanted), "--role")
    if ROLE_OUTPUT in outputs:
        found = outputs[ROLE_OUTPUT]
        return (found if found.startswith("arn:") else _arn_of(aws, found)), f"stack {STACK}"
    own = _role_of_notebook(aws, str(caller["Arn"]))
    if own is not None:
        return own, "this notebook"
    return _arn_of(aws, ROLE), "its name"


def _running_start(aws: Aws, job: str, runs: Sequence[Seen]) -> Run | None:
    """The start of `job` that has not ended; one of somebody else's that has such a name only takes the name."""
    living = (describe(aws, run.name) for run in runs if run.lives)
    return next((run for run in living if run.is_ours and run.job == job and not run.is_over), None)


def _role_of_notebook(aws: Aws, arn: str) -> str | None:
    """The role's ARN, if these are the credentials of SageMaker's own notebooks: their sessions are called so."""
    match = re.fullmatch(r"arn:(?P<partition>[^:]+):sts::(?P<account>\d+):assumed-role/(?P<name>[^/]+)/SageMaker", arn)
    if match is None:
        return None
    told = _told_to_notebook()
    if told is not None:
        return told
    try:
        return _arn_of(aws, match["name"])
    except AwsError as error:
        if error.aws_code not in DENIED:
            raise
    # A notebook's role may rarely ask about itself; the console makes such roles under this path.
    path = "service-role/" if match["name"].startswith("AmazonSageMaker-ExecutionRole") else ""
    return f"arn:{match['partition']}:iam::{match['account']}:role/{path}{match['name']}"


def _told_to_notebook() -> str | None:
    """What SageMaker Studio writes down for its apps."""
    try:
        told: str | None = json.loads(METADATA.read_text()).get("ExecutionRoleArn")
    except (OSError, ValueError):
        return None
    return told


def _arn_of(aws: Aws, name: str) -> str:
    try:
        return str(aws.call("iam", "GetRole", {"RoleName": name})["Role"]["Arn"])
    except AwsError as error:
        raise missing(error, f"role {name}", "--role") from error


def quota_names(resolved: Resolved) -> list[str]:
    """What Service Quotas calls the limits that a job falls under."""
    options = resolved.options
    names = [f"{options.instance_type} for {'spot ' if options.spot else ''}training job usage"]
    return names + ([f"{options.instance_type} for training warm pool usage"] if options.warm_pool_s else [])


def _quotas(aws: Aws, resolved: Resolved) -> tuple[Quota, ...]:
    """The limits of the instance type; Service Quotas finds them by their names only."""
    listed = aws.pages("service-quotas", "ListServiceQuotas", "Quotas", {"ServiceCode": "sagemaker", "MaxResults": 100})
    limits = {quota["QuotaName"]: float(quota["Value"]) for quota in listed}
    names = quota_names(resolved)
    for name in names:
        if name not in limits:
            raise SettingsError(f"Service Quotas has no value of this account's for {name!r}.")
    running = _running(aws, resolved)
    return tuple(Quota(name, limits[name], running) for name in names)


# Describing each running job takes a call; with more than these, the sum stays unknown.
MOST_DESCRIBED = 20


def _running(aws: Aws, resolved: Resolved) -> int | None:
    listed = aws.pages("sagemaker", "ListTrainingJobs", "TrainingJobSummaries", {"StatusEquals": RUNNING})
    if len(listed) > MOST_DESCRIBED:
        return None
    jobs = [aws.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": s["TrainingJobName"]}) for s in listed]
    return sum(
        int(job["ResourceConfig"].get("InstanceCount", 0))
        for job in jobs
        if job["ResourceConfig"].get("InstanceType") == resolved.options.instance_type
        and bool(job.get("EnableManagedSpotTraining")) == resolved.options.spot
    )
