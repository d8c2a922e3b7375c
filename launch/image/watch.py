"""Has CodeBuild make an image and follows it to the end; asked to leave, it ends the build: none goes on unwatched."""

import re
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta

from launch.core.aws import DENIED, Aws
from launch.core.clock import Clock, duration
from launch.core.errors import AwsError, Ended, NoAnswer
from launch.core.logs import QUIET_LOOKS, LogTail, Streams
from launch.core.perform import Say, perform
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from launch.image.codebuild import (
    DONE,
    LIMIT_MINUTES,
    LOG_GROUP,
    LOOK_EVERY_S,
    PROJECT,
    RUNNING,
    Build,
    Order,
    failure,
    stop_by_hand,
    stream_of,
)
from trainer.errors import TrainerError

# How long AWS may be out of reach.
PATIENCE_S = 300.0
LAST_LINES = 20
# Of docker's lines: a step begins, a layer is uploaded, all of them are.
_TELLING = re.compile(r"#\d+ \[|[0-9a-f]{12}: (Pushed|Layer already exists)|\S+: digest: sha256:")


@dataclass
class Watch:
    """One build.  lines: the last ones of its log."""

    order: Order
    aws: Aws
    clock: Clock
    say: Say
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    _asked: bool = False
    _id: str = ""
    _phase: str = ""
    _warned: str = ""

    def make(self) -> None:
        """Returns once CodeBuild has pushed the image.  Raises AwsError if it fails, Ended if asked to leave."""
        with hangups():
            try:
                self._start()
                build = self._follow()
            except (KeyboardInterrupt, Hangup, BrokenPipeError) as leave:
                raise self._stopped() from leave
        if build["buildStatus"] != DONE:
            self.say("what it said last:\n" + "\n".join(f"  {line}" for line in self.lines))
            raise failure(build, self.aws.region)

    def _start(self) -> None:
        perform(self.order.steps[:-1], self.aws.call, self.say, self.clock.sleep)
        self._asked = True
        try:
            self._id = self._begun()
        except NoAnswer as error:
            look = f"aws codebuild list-builds-for-project --project-name {PROJECT} --region {self.aws.region}"
            raise AwsError(
                f"{error} A build that it did start ends after {LIMIT_MINUTES} minutes at most: {look}"
            ) from error
        self.say(f"{self._id} is started; Ctrl-C ends it, and so does its time limit")

    def _begun(self) -> str:
        """The id of the build.  Asked for again it is the same build, by its token."""
        answers = perform((self.order.start,), self.aws.call, unless_gone(self.say), self.clock.sleep)
        return str(answers["build"]["build"]["id"])

    def _follow(self) -> Build:
        """Shows how far it is until it is over; returns how it is then.  Raises AwsError after long trouble."""
        tail, began = LogTail(self.aws, Streams(LOG_GROUP, stream_of(self._id))), self.clock.now()
        trouble_since: float | None = None
        while True:
            now = self.clock.now()
            try:
                build = self._look()
                trouble_since = None
            except AwsError as error:
                trouble_since = now if trouble_since is None else trouble_since
                if error.aws_code in DENIED or now - trouble_since > PATIENCE_S:
                    raise self._goes_on(error) from error
                self._warn(f"{error} Trying again")
            else:
                self._tell(build, timedelta(seconds=now - began))
                self._show(tail)
                if build["buildStatus"] != RUNNING:
                    self._drain(tail)
                    return dict(build)
            self.clock.sleep(LOOK_EVERY_S)

    def _look(self) -> Build:
        found: list[Build] = self.aws.call("codebuild", "BatchGetBuilds", {"ids": [self._id]})["builds"]
        if not found:
            raise AwsError(f"CodeBuild does not know {self._id}.", "NotThere")
        return found[0]

    def _tell(self, build: Build, since: timedelta) -> None:
        if build.get("currentPhase") != self._phase:
            self._phase = build.get("currentPhase", "")
            self.say(f"{duration(since):>8}  {self._phase}")

    def _show(self, tail: LogTail) -> int:
        """Shows what tells how far it is; returns how many lines came.  No build ends for want of its log."""
        try:
            lines = tail.new_lines()
        except AwsError as error:
            self._warn(str(error))
            return 0
        for line in filter(_TELLING.match, lines):
            self.say(f"          {line}")
        self.lines.extend(line for line in lines if line.strip())
        return len(lines)

    def _drain(self, tail: LogTail) -> None:
        """Lines arrive some seconds after they were written."""
        quiet = 0
        while quiet < QUIET_LOOKS:
            self.clock.sleep(LOOK_EVERY_S / 2)
            quiet = 0 if self._show(tail) else quiet + 1

    def _warn(self, text: str) -> None:
        """Says it once, and not at every look."""
        if text != self._warned:
            self.say(f"warning: {text}")
        self._warned = text

    def _stopped(self) -> Ended:
        """Ends the build if there may be one; returns what to end with.  Raises AwsError if that fails."""
        if not self._asked:
            return Ended("stopped before a build was started", 130)
        try:
            with hangups_ignored():
                self._id = self._id or self._begun()  # we were interrupted before we heard it
                self.aws.call("codebuild", "StopBuild", {"id": self._id})
        except (KeyboardInterrupt, TrainerError) as error:
            raise self._goes_on(error) from error
        return Ended(f"{self._id} was started, and is stopped as asked", 130)

    def _goes_on(self, error: BaseException) -> AwsError:
        """With what the user can do about it."""
        hand = f"end it with {stop_by_hand(self._id or 'ID', self.aws.region)}"
        return AwsError(f"{error or 'interrupted again:'} The build may go on for {LIMIT_MINUTES} minutes; {hand}")
