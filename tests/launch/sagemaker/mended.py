"""What moto lacks or has wrong of SageMaker, mended in moto's own classes: its server has it too.

A job stays InProgress until a test moves it on: advance(), complete(), fail(), interrupt(), time_out(), or agent.py,
which runs it.  Everything that can be set, such as quotas, is on Rules; account.py hands it to the tests.

Words marked [?] are not known to be AWS's own; the others were seen in its answers or its documentation.
"""

import copy
import functools
import hashlib
import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.session
from moto.core.responses import ActionResult, EmptyResult
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends
from moto.sagemaker.exceptions import SagemakerClientError
from moto.sagemaker.responses import SageMakerResponse
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend
from moto.servicequotas.responses import ServiceQuotasResponse

from launch.rehearse.ec2.mended import _changed

SERVICE = "sagemaker.amazonaws.com"
ON_DEMAND, SPOT, WARM = "training job usage", "spot training job usage", "training warm pool usage"
DEFAULT_QUOTA = 20.0
SPOT_SHARE = 0.3  # of the time is billed
PAGE = 10  # jobs in an answer, unless it is asked for more
LONGEST_RUN_S, DEFAULT_RUN_S = 28 * 86_400, 86_400

ROAD = ("Starting", "Downloading", "Training", "Uploading")  # while InProgress
ENDED = ("Completed", "Failed", "Stopped")
MESSAGES = {
    "Starting": "Starting the training job",
    "Prepared": "Preparing the instances for training",
    "No machines": "Insufficient capacity error from EC2 while launching instances, retrying!",
    "Downloading": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",  # [?]
    "Interrupted": "Training job interrupted: Spot capacity was reclaimed",  # [?]
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",  # [?]
    "MaxWaitTimeExceeded": "Training job wait time exceeded MaxWaitTimeInSeconds provided",  # [?]
}
NO_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)


@dataclass
class Slow:
    """In how many answers of DescribeTrainingJob a job is Stopping; None: until stopped() is called."""

    stopping: int | None = 1


def _quotas() -> dict[str, float]:
    return {f"{kind} for {usage}": DEFAULT_QUOTA for kind in instance_types() for usage in (ON_DEMAND, SPOT, WARM)}


@dataclass
class Rules:
    """What AWS has and allows.  quota: instances by its name; capacity: instances by type, without limit if missing.

    refuses_missing_data: CreateTrainingJob looks for input data, as it has been seen to; otherwise the job fails later.
    unlisted: names of jobs that listings do not have yet.
    """

    quota: dict[str, float] = field(default_factory=_quotas)
    capacity: dict[str, int] = field(default_factory=dict)
    slow: Slow = field(default_factory=Slow)
    refuses_missing_data: bool = False
    unlisted: set[str] = field(default_factory=set)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    lock: Any = field(default_factory=threading.RLock)  # the server has threads


@functools.cache
def _model() -> Any:
    return botocore.session.get_session().get_service_model("sagemaker")


def instance_types() -> list[str]:
    """Every type that SageMaker trains on."""
    return list(_model().shape_for("TrainingInstanceType").enum)


@contextmanager
def mended(rules: Rules) -> Iterator[None]:
    """Meanwhile moto is as AWS would be under `rules`."""
    changes = [
        (SageMakerResponse, "create_training_job", _create),
        (SageMakerResponse, "describe_training_job", _describe),
        (SageMakerResponse, "stop_training_job", _stop),
        (SageMakerResponse, "update_training_job", _update),
        (SageMakerResponse, "list_training_jobs", _list),
        (ServiceQuotasResponse, "list_service_quotas", _list_service_quotas),
        (ServiceQuotasBackend, "get_service_quota", _get_service_quota),
    ]
    with ExitStack() as stack:
        for owner, name, new in changes:
            stack.enter_context(_changed(owner, name, _alone(new), rules))
        yield


def _alone(act: Callable[..., Any]) -> Callable[..., Any]:
    """`act`, which gets the rules or a job first, with nobody else at the jobs."""

    @functools.wraps(act)
    def alone(first: Any, *args: Any, **named: Any) -> Any:
        with getattr(first, "rules", first).lock:
            return act(first, *args, **named)

    return alone


# ---- a job


class TrainingJob:
    """A job as DescribeTrainingJob shows it: `described`, in AWS's own names.  asked: the request, unchanged."""

    def __init__(self, rules: Rules, arn: str, asked: dict[str, Any], jobs: dict[str, Any]) -> None:
        """jobs: all of its region, by name."""
        self.rules, self.arn, self.asked, self._jobs = rules, arn, asked, jobs
        self.tags = list(asked.get("Tags", []))
        self.shown_for = 0  # how many more answers say Stopping
        now = rules.now()
        self.described: dict[str, Any] = {
            "EnableNetworkIsolation": False,
            "EnableInterContainerTrafficEncryption": False,
            "EnableManagedSpotTraining": False,
            **json.loads(json.dumps({key: value for key, value in asked.items() if key != "Tags"})),
            "TrainingJobArn": arn,
            "TrainingJobStatus": "InProgress",
            "CreationTime": now,
            "SecondaryStatusTransitions": [],
        }
        self.described["StoppingCondition"].setdefault("MaxRuntimeInSeconds", DEFAULT_RUN_S)
        if self.kept_s:
            self.described["WarmPoolStatus"] = {"Status": "InUse"}
        _enter(self, "Starting")

    @property
    def name(self) -> str:
        return str(self.asked["TrainingJobName"])

    @property
    def status(self) -> str:
        return str(self.described["TrainingJobStatus"])

    @property
    def secondary(self) -> str:
        return str(self.described["SecondaryStatus"])

    @property
    def instance_type(self) -> str:
        return str(self.asked["ResourceConfig"].get("InstanceType", ""))

    @property
    def count(self) -> int:
        return int(self.asked["ResourceConfig"].get("InstanceCount", 1))

    @property
    def others(self) -> list[Any]:
        """The region's other jobs, oldest first."""
        return [job for job in list(self._jobs.values()) if job is not self]

    @property
    def is_spot(self) -> bool:
        return bool(self.described["EnableManagedSpotTraining"])

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def kept_s(self) -> int:
        """How long its machines stay after its end."""
        return int(self.described["ResourceConfig"].get("KeepAlivePeriodInSeconds") or 0)

    @property
    def pool(self) -> str | None:
        """The state of its warm pool by now."""
        _cool(self)
        state = self.described.get("WarmPoolStatus")
        return None if state is None else str(state["Status"])

    @property
    def statuses(self) -> list[str]:
        """Every secondary status it has had."""
        return [str(transition["Status"]) for transition in self.described["SecondaryStatusTransitions"]]

    @property
    def model(self) -> str:
        """Where its model goes."""
        return f"{self.asked['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output/model.tar.gz"


def _enter(job: TrainingJob, status: str, primary: str = "") -> None:
    now, passed = job.rules.now(), job.described["SecondaryStatusTransitions"]
    if passed:
        passed[-1]["EndTime"] = now
    passed.append({"Status": status, "StartTime": now, "StatusMessage": MESSAGES[status]})
    job.described |= {"SecondaryStatus": status, "LastModifiedTime": now}
    if primary:
        job.described["TrainingJobStatus"] = primary


def _say(job: TrainingJob, message: str) -> None:
    """The present status goes on under another message."""
    job.described["SecondaryStatusTransitions"][-1]["StatusMessage"] = message
    job.described["LastModifiedTime"] = job.rules.now()


@_alone
def advance(job: TrainingJob, to: str = "Training") -> None:
    """Moves a job that is InProgress on to `to`, through whatever comes before.

    It fails on the way where there are no machines or no data; a spot job waits for machines.
    """
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    here = ROAD.index(job.secondary) if job.secondary in ROAD else -1  # -1: Interrupted
    assert here <= ROAD.index(to), f"{job.name} is {job.secondary} already"
    for status in ROAD[here + 1 : ROAD.index(to) + 1]:
        if status == "Downloading" and not _get_machines(job):
            return
        _enter(job, status)
        if status == "Downloading" and (missing := _missing_data(job.asked, job.arn)):
            fail(job, f"ClientError: Data download failed:NoSuchKey (404): {missing}")  # [?]
            return


def _get_machines(job: TrainingJob) -> bool:
    """Whether there are any; those are paid from now on."""
    if _has_machines(job):
        _say(job, MESSAGES["Prepared"])
        job.described.setdefault("TrainingStartTime", job.rules.now())
        return True
    if job.is_spot:
        _say(job, MESSAGES["No machines"])
    else:
        fail(job, NO_CAPACITY)
    return False


def _has_machines(job: TrainingJob) -> bool:
    limit = job.rules.capacity.get(job.instance_type)
    others = [other for other in job.others if other.instance_type == job.instance_type and not other.has_ended]
    return limit is None or sum(other.count for other in others if _has_started(other)) + job.count <= limit


def _has_started(job: TrainingJob) -> bool:
    return job.secondary not in ("Starting", "Interrupted")


@_alone
def complete(
    job: TrainingJob,
    seconds: float | None = None,
    billable: float | None = None,
    metrics: dict[str, float] | None = None,
) -> None:
    """A job ends well, after `seconds` of training (None: since it began), of which `billable` are to be paid."""
    advance(job, "Uploading")
    if job.has_ended:
        return
    for name, value in (metrics or {}).items():
        measured(job, name, value)
    _enter(job, "Completed", "Completed")
    _close(job, seconds, billable)


@_alone
def fail(job: TrainingJob, reason: str, seconds: float | None = None, billable: float | None = None) -> None:
    """A job fails for `reason`, such as AlgorithmError: ...  What it had written by then is uploaded."""
    assert not job.has_ended, f"{job.name} is {job.status}"
    if job.secondary == "Training":
        _enter(job, "Uploading")
    job.described["FailureReason"] = reason[:1024]
    _enter(job, "Failed", "Failed")
    _close(job, seconds, billable)


@_alone
def interrupt(job: TrainingJob) -> None:
    """AWS takes a spot job's machines; advance() starts it again."""
    assert job.is_spot, f"{job.name} is no spot job"
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    _enter(job, "Interrupted")


@_alone
def time_out(job: TrainingJob, limit: str = "MaxRuntimeExceeded") -> None:
    """A job is stopped by its own limit: MaxRuntimeExceeded or MaxWaitTimeExceeded."""
    stopping(job)
    stopped(job, limit)


@_alone
def stopping(job: TrainingJob) -> None:
    """A job begins to stop."""
    assert job.status == "InProgress", f"{job.name} is {job.status}"
    job.shown_for = job.rules.slow.stopping or 0
    _enter(job, "Stopping", "Stopping")


@_alone
def stopped(job: TrainingJob, status: str = "Stopped") -> None:
    """A job that was stopping has stopped; the model it had by then is uploaded."""
    assert job.status == "Stopping", f"{job.name} is {job.status}"
    if "Training" in job.statuses:
        _enter(job, "Uploading")
    _enter(job, status, "Stopped")
    _close(job, None, None)


@_alone
def measured(job: TrainingJob, name: str, value: float) -> None:
    """A metric's latest value."""
    others = [row for row in job.described.get("FinalMetricDataList", []) if row["MetricName"] != name]
    row = {"MetricName": name, "Value": value, "Timestamp": job.rules.now()}
    job.described["FinalMetricDataList"] = [*others, row]


@_alone
def age(job: TrainingJob, seconds: float) -> None:
    """Everything of this job happened so much earlier."""
    metrics = job.described.get("FinalMetricDataList", [])
    for part in (job.described, *job.described["SecondaryStatusTransitions"], *metrics):
        for key, value in part.items():
            if isinstance(value, datetime):
                part[key] = value - timedelta(seconds=seconds)


def _close(job: TrainingJob, seconds: float | None, billable: float | None) -> None:
    """What Describe says of a job that has ended."""
    if "Uploading" in job.statuses:
        job.described["ModelArtifacts"] = {"S3ModelArtifacts": job.model}
    if "TrainingStartTime" in job.described:
        took = (job.rules.now() - job.described["TrainingStartTime"]).total_seconds()
        if seconds is not None and seconds > took:
            age(job, seconds - took)
            took = seconds
        now = job.rules.now()
        job.described["SecondaryStatusTransitions"][-1] |= {"StartTime": now, "EndTime": now}
        job.described |= {"TrainingEndTime": now, "LastModifiedTime": now}
        job.described["TrainingTimeInSeconds"] = round(took if seconds is None else seconds)
        paid = job.described["TrainingTimeInSeconds"] * (SPOT_SHARE if job.is_spot else 1)
        job.described["BillableTimeInSeconds"] = round(paid if billable is None else billable)
    _keep(job)


# ---- warm pools


def _keep(job: TrainingJob) -> None:
    """The machines stay also after the job's or its user's own failure, if there were any."""
    if "WarmPoolStatus" not in job.described:
        return
    of_aws = job.status == "Failed" and not job.described["FailureReason"].startswith(("AlgorithmError", "ClientError"))
    is_kept = job.kept_s and "TrainingEndTime" in job.described and not of_aws
    job.described["WarmPoolStatus"] = {
        "Status": "Available" if is_kept else "Terminated",
        "ResourceRetainedBillableTimeInSeconds": 0,
    }


def _cool(job: TrainingJob) -> None:
    """What has become of the warm pool since somebody looked."""
    pool = job.described.get("WarmPoolStatus", {})
    if pool.get("Status") != "Available":
        return
    idle_s = (job.rules.now() - job.described["TrainingEndTime"]).total_seconds()
    pool["ResourceRetainedBillableTimeInSeconds"] = int(min(idle_s, job.kept_s))
    if idle_s >= job.kept_s:
        pool["Status"] = "Terminated"


def _likeness(job: TrainingJob) -> Any:
    """What jobs must have in common to use each other's machines."""
    machines = job.asked["ResourceConfig"]
    parts = [machines.get(key) for key in ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")]
    flags = [job.described[f"Enable{what}"] for what in ("NetworkIsolation", "InterContainerTrafficEncryption")]
    return job.asked["RoleArn"], job.asked.get("VpcConfig"), parts, flags, job.is_spot


def _reuse(job: TrainingJob) -> None:
    """Takes the machines of an earlier job that waits for one like this."""
    for other in job.others:
        if other.pool == "Available" and _likeness(other) == _likeness(job):
            other.described["WarmPoolStatus"] |= {"Status": "Reused", "ReusedByJob": job.name}
            job.described["WarmPoolStatus"] = {"Status": "InUse"}
            return


# ---- the operations


def _create(rules: Rules, original: Any, response: Any) -> ActionResult:
    asked, jobs = json.loads(response.body), response.sagemaker_backend.training_jobs
    _check_shape(_model().operation_model("CreateTrainingJob").input_shape, asked, "")
    _check_limits(asked)
    name, region, account = asked["TrainingJobName"], response.region, response.current_account
    arn = f"arn:aws:sagemaker:{region}:{account}:training-job/{name}"
    if name in jobs:
        raise SagemakerClientError(
            "ResourceInUse",
            "Training job names must be unique within an AWS account and region, and a training job with this name "
            f"already exists ({arn})",
        )
    _check_role(asked["RoleArn"], account)
    if rules.refuses_missing_data and (missing := _missing_data(asked, arn)):
        raise _invalid(missing)
    job = TrainingJob(rules, arn, asked, jobs)
    _check_quota(job)
    _reuse(job)
    jobs[name] = job
    return ActionResult({"TrainingJobArn": arn})


def _describe(rules: Rules, original: Any, response: Any) -> ActionResult:
    job = _known(response)
    _show(job)
    return ActionResult(copy.deepcopy(job.described))  # which goes on while the answer is written


def _stop(rules: Rules, original: Any, response: Any) -> EmptyResult:
    job = _known(response)
    if job.status != "InProgress":
        raise _invalid(f"The request was rejected because the training job is in status {job.status}.")
    stopping(job)
    if rules.slow.stopping == 0:
        stopped(job)
    return EmptyResult()


def _update(rules: Rules, original: Any, response: Any) -> ActionResult:
    """Of what can be updated, the time that a warm pool stays."""
    job, asked = _known(response), json.loads(response.body)
    kept_s = asked.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds")
    if kept_s is not None:
        _check_shape(_model().operation_model("UpdateTrainingJob").input_shape, asked, "")
        if job.pool not in ("Available", "InUse"):
            raise _invalid(f"The training job {job.name} has no warm pool that is in use or available.")  # [?]
        job.described["ResourceConfig"]["KeepAlivePeriodInSeconds"] = kept_s
        job.described["LastModifiedTime"] = rules.now()
        _cool(job)
    return ActionResult({"TrainingJobArn": job.arn})


def _known(response: Any) -> TrainingJob:
    job = response.sagemaker_backend.training_jobs.get(response._get_param("TrainingJobName"))
    if job is None:
        raise _invalid("Requested resource not found.")
    return job  # type: ignore[no-any-return]


def _show(job: TrainingJob) -> None:
    """The job is described; with every answer one that stops gets on with it."""
    _cool(job)
    if job.status == "Stopping" and job.rules.slow.stopping is not None:
        job.shown_for -= 1
        if job.shown_for < 0:
            stopped(job)


SORTED_BY = {"Name": lambda job: job.name, "CreationTime": lambda job: job.described["CreationTime"],
             "Status": lambda job: job.status}  # fmt: skip


def _list(rules: Rules, original: Any, response: Any) -> ActionResult:
    """Newest first unless asked otherwise.  With MaxResults the status is looked at page by page, as AWS does it."""
    ask, known = response._get_param, list(response.sagemaker_backend.training_jobs.values())
    jobs = [job for job in known if job.name not in rules.unlisted]
    shape = _model().operation_model("ListTrainingJobs").input_shape
    _check_shape(shape, {key: value for key, value in response.params.items() if key in shape.members}, "")
    status, size = ask("StatusEquals"), int(ask("MaxResults") or 0)
    found = [job for job in jobs if _is_asked_for(job, ask) and (size or status in (None, job.status))]
    found.sort(key=SORTED_BY[ask("SortBy", "CreationTime")], reverse=ask("SortOrder", "Descending") == "Descending")
    start, end = int(ask("NextToken") or 0), int(ask("NextToken") or 0) + (size or PAGE)
    page = [job for job in found[start:end] if status in (None, job.status)]
    answer: dict[str, Any] = {"TrainingJobSummaries": [_summary(job) for job in page]}
    return ActionResult(answer | ({"NextToken": str(end)} if end < len(found) else {}))


def _summary(job: TrainingJob) -> dict[str, Any]:
    _cool(job)
    keys = ("TrainingJobName", "TrainingJobArn", "CreationTime", "LastModifiedTime", "TrainingEndTime",
            "TrainingJobStatus", "SecondaryStatus", "WarmPoolStatus")  # fmt: skip
    return {key: copy.copy(job.described[key]) for key in keys if key in job.described}


def _is_asked_for(job: TrainingJob, ask: Callable[[str], Any]) -> bool:
    times = {"CreationTime": job.described["CreationTime"], "LastModifiedTime": job.described["LastModifiedTime"]}
    return (
        (ask("NameContains") or "") in job.name
        and ask("WarmPoolStatusEquals") in (None, job.pool)
        and all(not ask(f"{key}After") or time > _utc(ask(f"{key}After")) for key, time in times.items())
        and all(not ask(f"{key}Before") or time < _utc(ask(f"{key}Before")) for key, time in times.items())
    )


def _utc(time: Any) -> datetime:
    if isinstance(time, datetime):
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return datetime.fromtimestamp(float(time), UTC)


# ---- what is refused


def _invalid(message: str) -> SagemakerClientError:
    return SagemakerClientError("ValidationException", message)


def _check_shape(shape: Any, value: Any, path: str) -> None:
    """Lengths, ranges, patterns and enumerations, which neither botocore nor moto looks at."""
    if shape.type_name == "structure":
        for key, member in shape.members.items():
            if key in value:
                _check_shape(member, value[key], f"{path}.{key[0].lower()}{key[1:]}".lstrip("."))
        return
    if wrong := _what_is_wrong(shape, value):
        raise _invalid(
            f"1 validation error detected: Value '{value}' at '{path}' failed to satisfy constraint: "
            f"Member must {wrong}"
        )
    if shape.type_name == "list":
        for number, item in enumerate(value, 1):
            _check_shape(shape.member, item, f"{path}.{number}.member")
    if shape.type_name == "map":
        for key, item in value.items():
            _check_shape(shape.key, key, f"{path}.key")
            _check_shape(shape.value, item, f"{path}.{key}.value")


def _what_is_wrong(shape: Any, value: Any) -> str:
    limits = shape.metadata
    is_number = shape.type_name in ("integer", "long", "float", "double")
    size, what = (value, "value") if is_number else (len(value) if hasattr(value, "__len__") else 0, "length")
    if limits.get("enum") and value not in limits["enum"]:
        return f"satisfy enum value set: [{', '.join(limits['enum'])}]"
    if limits.get("max") is not None and size > limits["max"]:
        return f"have {what} less than or equal to {limits['max']}"
    if limits.get("min") is not None and size < limits["min"]:
        return f"have {what} greater than or equal to {limits['min']}"
    pattern = limits.get("pattern")
    if pattern and isinstance(value, str) and not re.fullmatch(_python(pattern), value, re.DOTALL):
        return f"satisfy regular expression pattern: {pattern}"
    return ""


def _python(pattern: str) -> str:
    """Java's regular expression in Python's words."""
    return pattern.replace(r"\p{L}", r"\w").replace(r"\p{N}", r"\d").replace(r"\p{Z}", r"\s")


def _check_limits(asked: dict[str, Any]) -> None:
    limits, is_spot = asked.get("StoppingCondition", {}), asked.get("EnableManagedSpotTraining", False)
    run_s, wait_s = limits.get("MaxRuntimeInSeconds", DEFAULT_RUN_S), limits.get("MaxWaitTimeInSeconds")
    if wait_s is not None and not is_spot:
        raise _invalid(
            "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
        )
    if is_spot and (wait_s is None or wait_s < run_s):
        raise _invalid(
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
        )
    if run_s > LONGEST_RUN_S:
        raise _invalid(f"Invalid MaxRuntimeInSeconds. It must not exceed {LONGEST_RUN_S}")  # [?]
    if is_spot and asked["ResourceConfig"].get("KeepAlivePeriodInSeconds"):
        raise _invalid("KeepAlivePeriodInSeconds is not supported when EnableManagedSpotTraining is set to true")  # [?]


def _check_role(arn: str, account: str) -> None:
    for role in iam_backends[account]["aws"].roles.values():
        if role.arn == arn and _trusts_sagemaker(json.loads(role.assume_role_policy_document)):
            return
    raise _invalid(
        f"Could not assume role {arn}. Please ensure that the role exists and allows principal '{SERVICE}' to assume "
        "the role."
    )


def _trusts_sagemaker(policy: dict[str, Any]) -> bool:
    for statement in _listed(policy.get("Statement", [])):
        principal, actions = statement.get("Principal", {}), _listed(statement.get("Action", []))
        services = _listed(principal.get("Service", [])) if isinstance(principal, dict) else []
        if statement.get("Effect") == "Allow" and SERVICE in services and {"sts:AssumeRole", "sts:*", "*"} & {*actions}:
            return True
    return False


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _missing_data(asked: dict[str, Any], arn: str) -> str:
    """AWS's sentence on the first channel that has nothing in it."""
    region, account = arn.split(":")[3:5]
    for channel in asked.get("InputDataConfig", []):
        source = channel["DataSource"].get("S3DataSource")
        bucket, _, prefix = source["S3Uri"].removeprefix("s3://").partition("/") if source else ("", "", "")
        there = s3_backends[account]["aws"].buckets.get(bucket)
        if source and not (there and any(key.startswith(prefix) for key in list(there.keys))):
            return (
                f'No S3 objects found under S3 URL "{source["S3Uri"]}" given in input data source. Please ensure that '
                f"the bucket exists in the selected region ({region}), that objects exist under that S3 prefix, and "
                f'that the role "{asked["RoleArn"]}" has "s3:ListBucket" permissions on bucket "{bucket}".'
            )
    return ""


def _check_quota(job: TrainingJob) -> None:
    used: dict[str, int] = defaultdict(int)
    for other in job.others:
        if not other.has_ended:
            used[_quota_name(other)] += other.count
        if other.pool in ("InUse", "Available") and _likeness(other) != _likeness(job):
            used[f"{other.instance_type} for {WARM}"] += other.count
    names = [_quota_name(job)] + ([f"{job.instance_type} for {WARM}"] if job.kept_s else [])
    for name in names:
        limit = job.rules.quota.get(name, 0)
        if used[name] + job.count > limit:
            raise SagemakerClientError(
                "ResourceLimitExceeded",
                f"The account-level service limit '{name}' is {limit:g} Instances, with current utilization of "
                f"{used[name]} Instances and a request delta of {job.count} Instances. Please use AWS Service Quotas "
                "to request an increase for this quota. If AWS Service Quotas is not available, contact AWS support "
                "to request an increase for this quota.",
            )


def _quota_name(job: TrainingJob) -> str:
    return f"{job.instance_type} for {SPOT if job.is_spot else ON_DEMAND}"


# ---- quotas


def quota_code(name: str) -> str:
    """A code for the quota of this name; not AWS's own, but as stable."""
    return f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}"


def _quota(rules: Rules, name: str) -> dict[str, Any]:
    return {
        "ServiceCode": "sagemaker",
        "ServiceName": "Amazon SageMaker",
        "QuotaCode": quota_code(name),
        "QuotaName": name,
        "Value": rules.quota[name],
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }


def _list_service_quotas(rules: Rules, original: Any, response: Any) -> str:
    asked = json.loads(response.body)
    if asked["ServiceCode"] != "sagemaker":
        raise NoSuchResource
    names, start, size = sorted(rules.quota), int(asked.get("NextToken") or 0), int(asked.get("MaxResults") or 100)
    answer: dict[str, Any] = {"Quotas": [_quota(rules, name) for name in names[start : start + size]]}
    if start + size < len(names):
        answer["NextToken"] = str(start + size)
    return json.dumps(answer)


def _get_service_quota(rules: Rules, original: Any, backend: Any, **asked: str) -> dict[str, Any]:
    if asked["service_code"] != "sagemaker":
        return dict(original(backend, **asked))
    for name in rules.quota:
        if quota_code(name) == asked["quota_code"]:
            return _quota(rules, name)
    raise NoSuchResource
