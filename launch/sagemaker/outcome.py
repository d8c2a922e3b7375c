"""The outcome of a training job, from SageMaker's status and the log, and its file in the job's folder."""

import re
import signal
from collections.abc import Iterable, Sequence
from datetime import datetime

from launch.aws.client import Aws
from launch.aws.names import TIME
from launch.aws.progress import get_outcome, put_outcome, resumed_by_name
from launch.core.errors import AwsError
from launch.core.terminal import Say
from launch.sagemaker.training_job import TrainingJob
from trainer.contract import SAGEMAKER_FAILURE_PATTERN, STOPPED, Exit
from trainer.outcome import Outcome, state_of

SIGNALLED = 128  # plus the signal's number: exit codes of shells and mpirun

Verdict = tuple[int, str]  # exit code, reason

_NO_CAPACITY = (
    "AWS has no free instances of this type here: try later, or give another "
    "--instance-type, several of them (ml.g5.12xlarge,ml.g6.12xlarge), another --region, or a --training-plan"
)

# Beginning of AWS's FailureReason -> exit code and remedy.
_REASONS = (
    ("CapacityError", Exit.AWS, _NO_CAPACITY),
    ("InsufficientCapacity", Exit.AWS, _NO_CAPACITY),
    ("InternalServerError", Exit.MACHINE, "SageMaker itself failed: the same command with --job-name {job} resumes "
     "from the newest checkpoint"),
    ("ClientError: Data download", Exit.DATA, "check --data, and what the role may read"),
    ("ClientError: Cannot pull", Exit.AWS, "check --image, and what the role may pull"),
    ("ClientError: Artifact upload", Exit.AWS, "check what the role may write in the job's bucket"),
)  # fmt: skip


def outcome_of(training_job: TrainingJob, now: datetime, lines: Sequence[str] = ()) -> Outcome:
    """The outcome of `training_job`, which is over.  Pure.

    lines: of its log.  With several hosts SageMaker reports the FailureReason of one, which may have none.
    """
    code, reason = _verdict(training_job, lines)
    ended = training_job.ended or now
    return Outcome(
        state_of(code),
        code,
        reason,
        seconds=max(0.0, (ended - training_job.created).total_seconds()),
        usd=training_job.cost(now),
        job=training_job.job,
        ended=ended.strftime(TIME),
    )


def _verdict(training_job: TrainingJob, lines: Sequence[str]) -> Verdict:
    if training_job.status == "Completed":
        return Exit.DONE, ""
    if training_job.status == "Failed":
        return _failed(training_job, lines)
    if training_job.status == "Deleting":  # then only outcome.json has its outcome
        return STOPPED, "it is being deleted in SageMaker"
    if training_job.detail in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded"):
        limit = "--max-hours" if training_job.detail == "MaxRuntimeExceeded" else "--max-wait-hours"
        remedy = f"the same command with --job-name {training_job.job} and more {limit} resumes it"
        return Exit.INTERRUPTED, f"the time limit ended it; {remedy}"
    if _gave_up_waiting(training_job):
        remedy = "another --instance-type or --region, or more --max-pending-hours"
        return Exit.AWS, f"SageMaker had no instances within --max-pending-hours; try later, or give {remedy}"
    return STOPPED, "it was stopped"


def _gave_up_waiting(training_job: TrainingJob) -> bool:
    """Whether SageMaker ended the job for lack of instances, for which it has no status."""
    if training_job.max_pending_s is None or training_job.started is not None or training_job.ended is None:
        return False
    return (training_job.ended - training_job.created).total_seconds() >= training_job.max_pending_s


def _failed(training_job: TrainingJob, lines: Sequence[str]) -> Verdict:
    failure, job = training_job.failure, training_job.job
    if said := _logged_failure([failure], job):
        return said
    reason = " ".join(failure.split()).rstrip(". ") or "SageMaker gives no reason"
    for start, code, remedy in _REASONS:
        if reason.startswith(start):
            return code, f"{reason}; {remedy.format(job=job)}"
    if training_job.waits:  # there was no container: SageMaker refused the job at its turn
        return Exit.AWS, reason
    return _logged_failure(lines, job) or _exited(reason, job)


def _exited(reason: str, job: str) -> Verdict:
    """The exit code that AWS's toolkit reports in `reason`."""
    # The container itself exits with 1 for every failure, so the toolkit's exit code comes first.
    exited = re.search(r"ExitCode (\d+)", reason) or re.search(r"exit code: (\d+)", reason)
    number = int(exited[1]) if exited else 0
    if number > SIGNALLED:
        killed = f"a rank was killed by {_signal(number - SIGNALLED)}"
        return Exit.MACHINE, f"{killed}; the same command with --job-name {job} resumes it: {reason}"
    return number or Exit.BUG, reason


def is_unexplained(training_job: TrainingJob) -> bool:
    """Whether the job failed with a reason that is less specific than its log may be."""
    reason = training_job.failure
    is_known = any(reason.startswith(start) for start, _, _ in _REASONS)
    return training_job.status == "Failed" and not is_known and not _logged_failure([reason], training_job.job)


def _logged_failure(texts: Iterable[str], job: str) -> Verdict | None:
    """The exit code and reason of the first rank that printed one.

    A training may print such a line with any number: only valid exit codes of a failure count.
    """
    for text in texts:
        said = SAGEMAKER_FAILURE_PATTERN.search(f"{text}\n")
        if said and 0 < int(said["code"]) < 256:
            return int(said["code"]), resumed_by_name(said["sentence"].rstrip("."), job)
    return None


def _signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"{name}, usually for lack of memory" if number == signal.SIGKILL else name


def last_lines(lines: Sequence[str], most: int = 15) -> list[str]:
    """The last lines of the rank that logged its failure; of all ranks if none did."""
    ends = [place for place, line in enumerate(lines) if SAGEMAKER_FAILURE_PATTERN.search(line + "\n")]
    if not ends:
        return list(lines[-most:])
    mark = _mark(lines[ends[0]])
    return [line for line in lines[: ends[0] + 1] if _mark(line) == mark][-most:]


def _mark(line: str) -> str:
    """The machine and rank at the start of a line, if any."""
    match = re.match(r"(\[\d+\] )?(rank \d+: )?", line)
    return match[0] if match else ""


# ---- its file


def record(aws: Aws, training_job: TrainingJob, outcome: Outcome, say: Say) -> None:
    """Write outcome.json into the job's folder.  A failure is only a warning, as it does not change the outcome."""
    if training_job.folder is None:
        return
    put_outcome(aws, training_job.folder, outcome, say)


def recorded(aws: Aws, training_job: TrainingJob) -> Outcome | None:
    """The outcome in the job's folder, if it belongs to this start; None if it is missing or unreadable."""
    if training_job.folder is None:
        return None
    try:
        outcome = get_outcome(aws, training_job.folder)
    except AwsError:
        return None
    if outcome is None or outcome.ended < training_job.created.strftime(TIME):
        return None
    return outcome
