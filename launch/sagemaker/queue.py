"""AWS Batch's queue in front of SageMaker: a start of a job is a service job there, and its attempts are training jobs.

A queue called demo is aws-ddp-toolkit-demo on AWS; launch.infra makes it.  Batch calls a training job AWSBatch, then
some of our name and an id, so attempts are found by their ARNs in DescribeServiceJob, and take their tags from there:
AWS does not document whether the training jobs get them.
https://docs.aws.amazon.com/batch/latest/userguide/service-jobs.html
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from launch.aws.batch import Described, Lines, Queued, QueueFacts, is_alive
from launch.aws.client import Aws
from launch.aws.names import BUCKET_TAG, JOB_TAG, parse_s3, queue_name
from launch.sagemaker.names import ATTEMPT, job_of, number_of
from launch.sagemaker.training_job import RUNNING, STOPPING, TrainingJob, read_training_job

WAITING = "Queued"  # in place of SageMaker's secondary status
# In the reason of a job that Batch has ended, as it needs more instances than the queue has:
# https://docs.aws.amazon.com/batch/latest/userguide/sm_job_stuck_in_runnable_misconfiguration.html
BY_QUEUE = "Terminated by JobStateTimeLimit action"


@dataclass
class Queues(Lines):
    """The toolkit's queues of a region, as one command sees them.  described: of a training job, None if it is gone."""

    described: Callable[[Aws, str], Described | None]

    suffix = ""
    listing = "ListServiceJobs"

    def facts(self, name: str) -> QueueFacts:
        """The queue's state.  Raises NotSetUp if there is none of this name, AwsError."""
        found, queue = self.called(name), queue_name(name)
        waiting = self.waiting(queue)
        used = self.snapshot(queue).get("queueUtilization", {}).get("totalCapacityUsage", ())
        in_use = int(sum(one["quantity"] for one in used))
        return QueueFacts(name, waiting, "schedulingPolicyArn" in found, self._most(found), in_use)

    def _most(self, queue: Described) -> int:
        places = [place["serviceEnvironment"] for place in queue["serviceEnvironmentOrder"]]
        answer = self.aws.call("batch", "DescribeServiceEnvironments", {"serviceEnvironments": places})
        limits = [one for place in answer["serviceEnvironments"] for one in place["capacityLimits"]]
        return sum(int(one["maxCapacity"]) for one in limits)

    def starts_of(self, job: str) -> list[Described]:
        """Batch's rows of the starts of `job`."""
        return [row for row in self.named(f"{job}*") if number_of(row["jobName"], job) is not None]

    def read(self, service_job: str, known: TrainingJob | None = None) -> TrainingJob:
        """The start of a job with this id: its newest attempt, or while it waits what it will be.  Raises AwsError.

        known: an earlier look, so that earlier attempts are not looked up again.
        """
        answer = self.aws.call("batch", "DescribeServiceJob", {"jobId": service_job})
        queued = self._queued(answer)
        latest = self.described(self.aws, queued.attempts[-1]) if queued.attempts else None
        found = merged(answer, latest, queued, self.aws.region)
        if known is not None and known.queued and (known.name, known.queued.attempts) == (found.name, queued.attempts):
            return replace(found, earlier_s=known.earlier_s)
        earlier = queued.attempts if found.waits else queued.attempts[:-1]
        return replace(found, earlier_s=sum(map(self._billed, earlier)))

    def _queued(self, answer: Described) -> Queued:
        arns = [one["serviceResourceId"]["value"] for one in answer.get("attempts", ()) if "serviceResourceId" in one]
        return self.place(answer, [arn.rpartition("/")[2] for arn in arns])

    def _billed(self, name: str) -> int:
        found = self.described(self.aws, name)
        return int(found.get("BillableTimeInSeconds") or 0) if found else 0


# ---- a start of a job as its training job


def is_attempt(name: str) -> bool:
    """Whether Batch has named this training job."""
    return name.startswith(ATTEMPT)


def alone(attempt: TrainingJob, start: str) -> TrainingJob:
    """An attempt whose service job Batch has forgotten, with the tags that it would have, as far as it shows them."""
    job, folder = job_of(start), parse_s3(attempt.checkpoints or attempt.model or "")
    tags = {JOB_TAG: job, **({BUCKET_TAG: folder.bucket} if folder else {}), **attempt.tags}
    return replace(attempt, tags=tags, queued=Queued("", "", start, "", "", (attempt.name,)))


def merged(answer: Described, latest: Described | None, queued: Queued, region: str) -> TrainingJob:
    """The start of a job, of Batch's answer and the newest attempt.  Pure.

    After an attempt that failed it waits again until Batch has given it up; after `stop` it is stopped, whatever became
    of its attempt.
    """
    tags, is_terminated = answer.get("tags", {}), _was_stopped(answer)
    attempt = None if latest is None else replace(read_training_job(latest, tags, region), queued=queued)
    if attempt is not None and _runs_or_is_done(attempt):
        return attempt
    if is_alive(answer):
        return _waiting(answer, queued, region, STOPPING if is_terminated else RUNNING, WAITING)
    if attempt is None:
        return _ended(answer, queued, region, "Stopped" if is_terminated else "Failed")
    return replace(attempt, status="Stopped") if is_terminated and attempt.status == "Failed" else attempt


def _runs_or_is_done(attempt: TrainingJob) -> bool:
    """Whether an attempt is the last one so far, whatever Batch has seen of it."""
    return attempt.status == "Completed" or not attempt.is_over


def _was_stopped(answer: Described) -> bool:
    """Whether somebody has stopped a service job, rather than its queue."""
    return bool(answer.get("isTerminated")) and BY_QUEUE not in answer.get("statusReason", "")


def _ended(answer: Described, queued: Queued, region: str, status: str) -> TrainingJob:
    """What the job was to be, which has ended without a training job."""
    reason = queued.reason.removeprefix("Received status from SageMaker: ")
    return replace(_waiting(answer, queued, region, status, status), failure=reason)


def _waiting(answer: Described, queued: Queued, region: str, status: str, detail: str) -> TrainingJob:
    """What the job will be, by the request that waits."""
    payload = json.loads(answer["serviceRequestPayload"])
    times = {"CreationTime": _time(answer["createdAt"])}
    if answer.get("stoppedAt") and status not in (RUNNING, STOPPING):
        times["TrainingEndTime"] = _time(answer["stoppedAt"])
    made = {**payload, **times, "TrainingJobName": queued.name, "TrainingJobStatus": status, "SecondaryStatus": detail}
    return replace(read_training_job(made, answer.get("tags", {}), region), queued=queued)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
