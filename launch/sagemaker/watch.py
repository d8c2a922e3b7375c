"""Follows a training job: shows its status and its log until it is over."""

import re
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from launch.aws.client import Aws
from launch.aws.logs import LogDisplay, LogTail, Streams
from launch.aws.retry import Retry
from launch.sagemaker.runtime import Runtime
from launch.sagemaker.training_job import LOG_GROUP, TrainingJob
from launch.sagemaker.training_jobs import refreshed
from trainer.contract import SAGEMAKER_FAILURE
from trainer.errors import TrainerError

POLL_S = 10.0
LAST_WORDS = timedelta(hours=1)  # a rank that failed may wait for the others, and the result is uploaded

Shows = Callable[[str], bool]  # whether a line of the log is shown

# The trainer's lines for its user, among those of AWS's container toolkit, pip and mpirun.
_HEADLINE = re.compile(
    r"(\[\d+\] )?(rank \d+: )?"
    r"(warning: |error: |epoch \d+/|resuming |done: |.+ parameters, on |.+ [\d,]+ updates$)"
)
# The prefix of a line under mpirun, job, rank and stream: Open MPI's own, and with a host as AWS's toolkit writes it.
_TAGGED = re.compile(r"^\[\d+,(mpirank:)?(?P<rank>\d+)(,algo-\d+)?\]<std(out|err)>: ?(?P<text>.*)$")


def is_headline(line: str) -> bool:
    """Whether a line of a job's log is one of the trainer's for its user."""
    return _HEADLINE.match(line) is not None


def readable(line: str) -> str:
    """A line of the log without mpirun's prefix, which becomes `rank N:` for ranks other than 0."""
    match = _TAGGED.match(line)
    if match is None:
        return line
    return match["text"] if match["rank"] == "0" else f"rank {match['rank']}: {match['text']}"


def streams_of(name: str) -> Streams:
    """The log streams of the training job called `name`: NAME/algo-1-1732180000."""
    return Streams(LOG_GROUP, f"{name}/algo-", end="-", rewrite=readable)


def why_in_the_log(aws: Aws, training_job: TrainingJob) -> list[str]:
    """The lines in which ranks of a job that is over logged why they ended, in its last hour.  Raises AwsError."""
    since = (training_job.ended or training_job.created) - LAST_WORDS
    words = SAGEMAKER_FAILURE.partition(" {")[0]
    return LogTail(aws, streams_of(training_job.name), since=since, words=words).new_lines()


class Follower:
    """Follows one training job.  lines: the last lines of its log, shown or not."""

    def __init__(
        self, runtime: Runtime, training_job: TrainingJob, shows: Shows | None = None, poll_s: float = POLL_S
    ) -> None:
        self._runtime, self._poll_s = runtime, poll_s
        several, since = training_job.nodes > 1, training_job.created
        tail = LogTail(runtime.aws, streams_of(training_job.name), several=several, since=since)
        self._display = LogDisplay(tail, runtime.clock, runtime.say, shows, poll_s)
        self._training_job = training_job
        self._transitions_shown = 0

    @property
    def lines(self) -> deque[str]:
        return self._display.lines

    def follow(self) -> TrainingJob:
        """Shows the job until it is over, and returns it.  Raises TrainerError after ten minutes of failed calls."""
        retry = Retry(self._runtime.clock)
        while True:
            try:
                self._training_job = refreshed(self._runtime.aws, self._training_job)
                self._show_transitions()
                self._display.show()
                if self._training_job.is_over:
                    self._display.drain()
                    return self._training_job
                retry.success()
            except TrainerError as error:
                retry.failure(error)
                self._display.warn(f"{error}\n  trying again")
            self._runtime.clock.sleep(self._poll_s)

    def _show_transitions(self) -> None:
        transitions = self._training_job.transitions
        for status, message in transitions[self._transitions_shown :]:
            self._runtime.say(f"{status}: {message}" if message else status)
        self._transitions_shown = len(transitions)
