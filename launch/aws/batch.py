"""The toolkit's queues in AWS Batch, in front of SageMaker and of EC2: names, state, line, and the runs of a sweep.

A queue called demo is aws-ddp-toolkit-demo on AWS, and for EC2 aws-ddp-toolkit-demo-ec2; launch.infra makes both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from launch.aws.client import Aws
from launch.aws.names import FOR_EC2, QUEUES, queue_name
from launch.aws.refusals import DENIED
from launch.core.errors import AwsError, NotSetUp
from launch.core.job import Batch, Member
from launch.core.plan import Fact
from trainer.errors import TrainerError, did_you_mean

OVER = ("SUCCEEDED", "FAILED")
FRONT = 100  # jobs that Batch shows of a line
OF_SAGEMAKER = "SAGEMAKER_TRAINING"  # type of a queue

Described = Mapping[str, Any]


def in_line(jobs: int) -> str:
    """The number of jobs in line, of which Batch shows the first ones."""
    return f"{jobs} in line" if jobs < FRONT else f"{FRONT} or more in line"


@dataclass(frozen=True)
class QueueFacts:
    """A queue's state."""

    name: str
    waiting: tuple[str, ...] = ()  # names of the jobs in line, the next one first; at most 100
    has_shares: bool = True
    most: int = 0  # instances at a time; 0 for EC2, whose limits are the quotas of vCPUs
    in_use: int = 0  # instances

    @property
    def fact(self) -> Fact:
        """It, in a plan."""
        first, more = ", ".join(self.waiting[:3]), ", ..." if len(self.waiting) > 3 else ""
        line = f"{in_line(len(self.waiting))}: {first}{more}" if self.waiting else "no job waits"
        value = {"name": self.name, "waiting": list(self.waiting)}
        if not self.most:
            return Fact("queue", value, f"{self.name}: {line}")
        used = f"{self.in_use} of {self.most} instances in use"
        return Fact("queue", {**value, "most": self.most, "in_use": self.in_use}, f"{self.name}: {used}, {line}")


@dataclass(frozen=True)
class Queued:
    """A job of Batch in a queue: a job's launcher for EC2, or one of the job's starts on SageMaker."""

    id: str
    queue: str
    name: str
    status: str  # Batch's: SUBMITTED to RUNNING, SUCCEEDED or FAILED
    reason: str
    attempts: tuple[str, ...] = ()  # names of its training jobs, oldest first; unknown for EC2
    place: int | None = None  # in line, from 1; None: not in line, or behind the first 100
    in_line: int = 0  # jobs

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    @property
    def in_words(self) -> str:
        """Its state, as the rest of a sentence."""
        if self.is_over or self.status in ("STARTING", "RUNNING"):
            return f"{'has left' if self.is_over else 'runs in'} queue {self.queue}"
        place = f"behind the first {FRONT}" if self.place is None else f"number {self.place} of {in_line(self.in_line)}"
        return f"waits in queue {self.queue}, {place if self.status == 'RUNNABLE' else 'just submitted'}"


def is_alive(row: Described) -> bool:
    """Whether Batch has more to do for a job."""
    return row["status"] not in OVER


@dataclass
class Lines:
    """The queues of a region for one backend, as one command sees them."""

    aws: Aws
    _snapshots: dict[str, Described] = field(default_factory=dict, kw_only=True)  # by queue

    suffix: ClassVar[str] = FOR_EC2  # of the names
    listing: ClassVar[str] = "ListJobs"

    def names(self) -> Sequence[str]:
        """Their names on AWS; none for a user who may not look.  Raises AwsError."""
        try:
            rows = self.aws.pages("batch", "DescribeJobQueues", "jobQueues")
        except AwsError as error:
            if error.aws_code in DENIED:
                return ()
            raise
        return [row["jobQueueName"] for row in rows if self._is_own(row)]

    def _is_own(self, row: Described) -> bool:
        name, is_of_ec2 = str(row["jobQueueName"]), row.get("jobQueueType") != OF_SAGEMAKER
        return name.startswith(QUEUES) and name.endswith(self.suffix) and is_of_ec2 == bool(self.suffix)

    def called(self, name: str) -> Described:
        """Batch's description of a queue.  Raises NotSetUp if there is none of this name, AwsError."""
        rows = self.aws.call("batch", "DescribeJobQueues", {"jobQueues": [queue_name(name, self.suffix)]})["jobQueues"]
        if not rows or rows[0]["state"] != "ENABLED":
            raise self._missing(name)
        found: Described = rows[0]
        return found

    def _missing(self, name: str) -> NotSetUp:
        known = [self.short(one) for one in self.names()]
        near = did_you_mean(name, known) or f".  There are: {', '.join(known) or 'none'}."
        make = f"python -m launch.infra up --queue {name}"
        which = f"no queue {name!r}{' for EC2' if self.suffix else ''}"
        return NotSetUp(f"{which} in {self.aws.region}{near}  To make it: {make}")

    def short(self, queue: str) -> str:
        """The user's name for a queue."""
        return queue.removeprefix(QUEUES).removesuffix(self.suffix)

    def snapshot(self, queue: str) -> Described:
        """The line and the use of a queue."""
        if queue not in self._snapshots:
            self._snapshots[queue] = self.aws.call("batch", "GetJobQueueSnapshot", {"jobQueue": queue})
        return self._snapshots[queue]

    def line(self, queue: str) -> list[str]:
        """The ids of the jobs in line, the next one first; Batch shows the first 100."""
        jobs = self.snapshot(queue).get("frontOfQueue", {}).get("jobs", ())
        return [row["jobArn"].rpartition("/")[2] for row in jobs]

    def waiting(self, queue: str) -> tuple[str, ...]:
        """The names of the jobs in line, the next one first."""
        front = self.line(queue)
        names = {row["jobId"]: row["jobName"] for row in self.rows(queue, jobStatus="RUNNABLE")} if front else {}
        return tuple(names.get(one, one) for one in front)

    def named(self, name: str) -> list[Described]:
        """Batch's rows of the jobs of this name, or those whose names begin so: demo*.  Batch's filter ignores case."""
        named = {"name": "JOB_NAME", "values": [name]}
        rows = [row for queue in self.names() for row in self.rows(queue, filters=[named])]
        return [row for row in rows if name.endswith("*") or row["jobName"] == name]

    def since(self, moment: datetime) -> list[Described]:
        """Batch's rows of the jobs that were submitted since."""
        after = {"name": "AFTER_CREATED_AT", "values": [str(int(moment.timestamp() * 1000))]}
        return [row for queue in self.names() for row in self.rows(queue, filters=[after])]

    def rows(self, queue: str, **asked: Any) -> list[Described]:
        """Batch's rows, with their queue.  With a filter, of jobs in any status:

        https://docs.aws.amazon.com/batch/latest/APIReference/API_ListJobs.html
        """
        rows = self.aws.pages("batch", self.listing, "jobSummaryList", {"jobQueue": queue, **asked})
        return [{**row, "jobQueue": queue} for row in rows]

    def place(self, answer: Described, attempts: Sequence[str] = ()) -> Queued:
        """A job of which this is Batch's row or description, with its place in line."""
        name, queue = answer["jobId"], answer["jobQueue"].rpartition("/")[2]
        line = self.line(queue) if answer["status"] == "RUNNABLE" else []
        return Queued(
            id=name,
            queue=self.short(queue),
            name=answer["jobName"],
            status=answer["status"],
            reason=answer.get("statusReason", ""),
            attempts=tuple(attempts),
            place=line.index(name) + 1 if name in line else None,
            in_line=len(line),
        )


def submit_each(members: Sequence[Member], batch: Batch, put: Callable[[Member], bool]) -> list[str]:
    """Submit the runs of a sweep that have a queue, one by one; return the names of the jobs to attach to.

    Jobs that wait or run, or have ended while no launcher followed them, are included but not submitted again.  Jobs
    that cannot be submitted are left out.
    put: submits a job, and returns whether it was not there already; raises TrainerError.
    """
    queued = [member for member in members if member.job.where.queue is not None]
    names = list[str]()
    for number, member in enumerate(queued, 1):
        try:
            is_new = put(member)
        except TrainerError as error:  # its own launcher meets it again, and its row has it
            batch.say(f"{number}/{len(queued)}  {member.name} is not in the queue: {error}")
            continue
        names.append(member.name)
        if is_new:
            batch.say(f"{number}/{len(queued)}  {member.name} is in queue {member.job.where.queue}")
    return names
