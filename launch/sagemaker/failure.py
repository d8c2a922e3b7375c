"""How a training job ended, and why SageMaker refused one: AWS's words -> an exit code and a sentence.  Pure."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from launch.core.errors import AwsError
from launch.sagemaker.runs import Run
from trainer.contract import SAGEMAKER_FAILURE_PATTERN, Exit

STOPPED = 130
SIGNALLED = 128  # and the signal: how shells and mpirun write it

# FailureReason, as AWS begins it -> exit code and what to do.
_REASONS = (
    ("CapacityError", Exit.AWS, "AWS has no free machines of this type here: try later, another --instance-type, or "
     "another --region"),
    ("InternalServerError", Exit.MACHINE, "SageMaker itself failed: the same command again goes on from the newest "
     "checkpoint"),
    ("ClientError: Data download", Exit.DATA, "look at --data, and at what the role may read"),
    ("ClientError: Cannot pull", Exit.AWS, "look at --image, and at what the role may pull"),
    ("ClientError: Artifact upload", Exit.AWS, "look at what the role may write in the job's bucket"),
)  # fmt: skip

# CreateTrainingJob's refusals, by what AWS says -> what to do.
_REFUSALS = {
    r"Could not assume role (?P<what>\S+?)\.? ": "SageMaker cannot assume role {what}: its trust policy must name "
    "sagemaker.amazonaws.com (infra/iam/sagemaker-trust.json), and a new role takes a minute; or give another --role.",
    r"service limit '(?P<what>[^']+)' is (?P<limit>\d+)": "the account's quota {what!r} is {limit}; ask for more under "
    "Service Quotas, Amazon SageMaker, or take fewer --nodes or another --instance-type.",
    r"No S3 objects found under S3 URL \"(?P<what>[^\"]+)\"": "there is nothing under {what}; look at --data.",
    r"(?P<what>ml\.\S+) .*not (supported|available)": "{what} is not to be had in this region; take another "
    "--instance-type or --region.",
}


@dataclass(frozen=True)
class Over:
    """How a job ended.  code: its exit code, of trainer.contract.Exit where the training has one."""

    code: int
    sentence: str


def verdict(run: Run) -> Over:
    """How `run`, which is over, ended."""
    if run.status == "Completed":
        return Over(Exit.DONE, "the training is done")
    if run.status == "Failed":
        return _failed(run)
    if run.detail in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded"):
        limit = "--max-hours" if run.detail == "MaxRuntimeExceeded" else "--max-wait-hours"
        return Over(Exit.INTERRUPTED, f"the time limit ended it; the same command with more {limit} goes on")
    return Over(STOPPED, "it was stopped")


def _failed(run: Run) -> Over:
    said = SAGEMAKER_FAILURE_PATTERN.search(run.failure)
    if said is not None:
        return Over(int(said["code"]), said["sentence"].rstrip("."))
    reason = " ".join(run.failure.split()).rstrip(". ") or "SageMaker gives no reason"
    for start, code, remedy in _REASONS:
        if reason.startswith(start):
            return Over(code, f"{reason}; {remedy}")
    # The container's own says 1 of everything that the toolkit had to say, so the toolkit's goes first.
    exited = re.search(r"ExitCode (\d+)", reason) or re.search(r"exit code: (\d+)", reason)
    number = int(exited[1]) if exited else 0
    if number > SIGNALLED:
        return Over(Exit.MACHINE, f"a rank was killed by {_signal(number - SIGNALLED)}; start again to go on: {reason}")
    return Over(number or Exit.BUG, reason)


def _signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"{name}, for which the usual reason is too little memory" if number == signal.SIGKILL else name


def console(run: Run) -> str:
    """Where a browser shows it."""
    suffix = "amazonaws.cn" if run.region.startswith("cn-") else "aws.amazon.com"
    return f"https://{run.region}.console.{suffix}/sagemaker/home?region={run.region}#/jobs/{run.name}"


def refused(error: AwsError) -> AwsError:
    """`error` of CreateTrainingJob, with a remedy if we know one."""
    for pattern, remedy in _REFUSALS.items():
        found = re.search(pattern, str(error))
        if found is not None:
            return type(error)(remedy.format(**found.groupdict()), error.aws_code, error.operation)
    return error


# What mpirun puts before a line, as AWS's toolkit makes it readable: 1 job, rank, host and stream.
_TAGGED = re.compile(r"^\[\d+,mpirank:(?P<rank>\d+),algo-\d+\]<std(out|err)>: ?(?P<text>.*)$")


def readable(line: str) -> str:
    """A line of the log without mpirun's mark, but for the rank where that is not 0."""
    found = _TAGGED.match(line)
    if found is None:
        return line
    return found["text"] if found["rank"] == "0" else f"rank {found['rank']}: {found['text']}"


def last_words(lines: Sequence[str], most: int = 15) -> list[str]:
    """Of readable lines, the last ones of the rank that says why it failed; of all, where none does."""
    ends = [place for place, line in enumerate(lines) if SAGEMAKER_FAILURE_PATTERN.search(line + "\n")]
    if not ends:
        return list(lines[-most:])
    mark = _mark(lines[ends[0]])
    return [line for line in lines[: ends[0] + 1] if _mark(line) == mark][-most:]


def _mark(line: str) -> str:
    """The machine and the rank that a line begins with, if it does."""
    found = re.match(r"(\[\d+\] )?(rank \d+: )?", line)
    return found[0] if found else ""
