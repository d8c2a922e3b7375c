"""Follows a training job: what SageMaker says about it, and its logs, until it is over."""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.logs import QUIET_LOOKS, LogTail, Streams
from launch.core.perform import Say
from launch.sagemaker.failure import readable
from launch.sagemaker.runs import LOG_GROUP, Run, again
from trainer.errors import TrainerError

POLL_S = 10.0
# How long AWS may be out of reach before we give up; the job goes on without us.
PATIENCE_S = 600.0
REMEMBERED = 1000  # lines, for what the failing rank said last


# What the trainer says to its user, among what AWS's container toolkit, pip and mpirun write.
_HEADLINE = re.compile(
    r"(\[\d+\] )?(rank \d+: )?"
    r"(warning: |error: |epoch \d+/|going on after |done: |.+ parameters, on |.+ [\d,]+ updates$)"
)


def is_headline(line: str) -> bool:
    """Whether a line of a job's log is the trainer's, and for people."""
    return _HEADLINE.match(line) is not None


def anything(line: str) -> bool:
    """Every line of a job's log."""
    return True


def streams_of(run: str) -> Streams:
    """Where the instances of the training job called `run` write: RUN/algo-1-1732180000."""
    return Streams(LOG_GROUP, f"{run}/algo-", end="-", rewrite=readable)


@dataclass
class Follower:
    """Follows one training job.

    shows: whether a line of the log is shown; poll_s: between looks; lines: the last ones of the log.
    """

    aws: Aws
    clock: Clock
    say: Say
    run: Run
    shows: Callable[[str], bool] = anything
    poll_s: float = POLL_S
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _said: int = 0
    _warned: str = ""

    def follow(self) -> Run:
        """Shows what happens until the job is over; returns how it is then.  Raises TrainerError after long trouble."""
        tail = LogTail(self.aws, streams_of(self.run.name), several=self.run.nodes > 1, since=self.run.created)
        trouble_since: float | None = None
        while True:
            try:
                self.run = again(self.aws, self.run)
                self._tell()
                self._show(tail)
                if self.run.is_over:
                    self._drain(tail)
                    return self.run
                trouble_since = None
            except TrainerError as error:
                now = self.clock.now()
                trouble_since = now if trouble_since is None else trouble_since
                if now - trouble_since > PATIENCE_S:
                    raise
                self._warn(f"{error}\n  trying again")
            self.clock.sleep(self.poll_s)

    def _tell(self) -> None:
        """What SageMaker says that it did not say before."""
        for status, message in self.run.said[self._said :]:
            self.say(f"{status}: {message}" if message else status)
        self._said = len(self.run.said)

    def _show(self, tail: LogTail) -> int:
        """Shows what is new; returns how many lines came.  Logs are good to have; no job ends for want of them."""
        try:
            lines = tail.new_lines()
        except AwsError as error:
            self._warn(str(error))
            return 0
        self._warned = ""
        for line in filter(self.shows, lines):
            self.say(line)
        self.lines.extend(lines)
        return len(lines)

    def _warn(self, text: str) -> None:
        """Says it once, and not at every look."""
        if text != self._warned:
            self.say(f"warning: {text}")
        self._warned = text

    def _drain(self, tail: LogTail) -> None:
        """Lines arrive some seconds after they were written."""
        quiet = 0
        while quiet < QUIET_LOOKS:
            self.clock.sleep(self.poll_s / 2)
            quiet = 0 if self._show(tail) else quiet + 1
