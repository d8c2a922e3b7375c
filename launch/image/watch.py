"""Has CodeBuild make an image, and follows the build.  Whatever ends this program stops the build, too."""

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock, duration
from launch.core.errors import AwsError, Ended, NoAnswer
from launch.core.logs import LogDisplay, LogTail, Streams
from launch.core.patience import Patience, patiently
from launch.core.perform import Say, perform
from launch.core.refusals import DENIED
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from launch.image.codebuild import (
    DONE,
    LIMIT_MINUTES,
    LOG_GROUP,
    LOOK_EVERY_S,
    PROJECT,
    RUNNING,
    Description,
    RemoteBuild,
    failure,
    stop_by_hand,
    stream_of,
)
from trainer.contract import STOPPED
from trainer.errors import TrainerError

# How long AWS may be out of reach.
PATIENCE_S = 300.0
LAST_LINES = 20
INDENT = " " * 10
# The lines of docker's that show progress: a step starts, a layer is uploaded, all of them are.
_PROGRESS = re.compile(r" *(#\d+ \[|[0-9a-f]{12}: (Pushed|Layer already exists)|\S+: digest: sha256:)")


class Watch:
    """One build."""

    def __init__(self, remote: RemoteBuild, aws: Aws, clock: Clock, say: Say) -> None:
        self._remote, self._aws, self._clock, self._say = remote, aws, clock, say
        self._is_requested = False
        self._id = self._phase = ""

    def make(self) -> None:
        """Returns once CodeBuild has pushed the image.  Raises AwsError if it fails, Ended if interrupted."""
        with hangups():
            try:
                self._start()
                build, lines = self._follow()
            except (KeyboardInterrupt, Hangup, BrokenPipeError) as interrupt:
                raise self._stop() from interrupt
        if build["buildStatus"] != DONE:
            self._say("its last lines:\n" + "\n".join(f"  {line}" for line in lines[-LAST_LINES:]))
            raise failure(build, self._aws.region)

    def _start(self) -> None:
        perform(self._remote.steps[:-1], self._aws.call, self._say, self._clock.sleep)
        self._is_requested = True
        try:
            self._id = self._request()
        except NoAnswer as error:
            look = f"aws codebuild list-builds-for-project --project-name {PROJECT} --region {self._aws.region}"
            raise AwsError(
                f"{error} If it started a build, that ends within {LIMIT_MINUTES} minutes: {look}"
            ) from error
        self._say(f"started {self._id}; Ctrl-C stops it")

    def _request(self) -> str:
        """The id of the build.  A repeated request gives the same build, by its token."""
        answers = perform((self._remote.start,), self._aws.call, unless_gone(self._say), self._clock.sleep)
        return str(answers["build"]["build"]["id"])

    def _follow(self) -> tuple[Description, list[str]]:
        """Shows progress; returns the finished build and its log.  Raises AwsError after PATIENCE_S of trouble."""
        streams = Streams(LOG_GROUP, stream_of(self._id), rewrite=lambda line: INDENT + line)
        log = LogDisplay(LogTail(self._aws, streams), self._clock, self._say, _is_progress, LOOK_EVERY_S)
        try:
            build = self._wait(log)
        except AwsError as error:
            raise self._left_running(error) from error
        log.drain()
        return build, [line.removeprefix(INDENT) for line in log.lines if line.strip()]

    def _wait(self, log: LogDisplay) -> Description:
        patience, started = Patience(self._clock, PATIENCE_S, _may_pass), self._clock.now()
        while True:
            try:
                build = self._look()
            except AwsError as error:
                patience.failure(error)
                log.warn(f"{error} Trying again")
            else:
                patience.success()
                self._show_phase(build, timedelta(seconds=self._clock.now() - started))
                log.show()
                if build["buildStatus"] != RUNNING:
                    return build
            self._clock.sleep(LOOK_EVERY_S)

    def _look(self) -> Description:
        builds: list[Mapping[str, Any]] = self._aws.call("codebuild", "BatchGetBuilds", {"ids": [self._id]})["builds"]
        if not builds:
            raise AwsError(f"CodeBuild does not know {self._id}.", "NotThere")
        return builds[0]

    def _show_phase(self, build: Description, since: timedelta) -> None:
        phase = build.get("currentPhase", "")
        if phase != self._phase:
            self._phase = phase
            self._say(f"{duration(since):>8}  {phase}")

    def _stop(self) -> Ended:
        """Stops the build if there may be one; returns what to raise.  Raises AwsError if that fails."""
        if not self._is_requested:
            return Ended("stopped before a build was started", STOPPED)
        try:
            with hangups_ignored():
                self._id = self._id or self._request()  # interrupted before the answer
                stop = partial(self._aws.call, "codebuild", "StopBuild", {"id": self._id})
                patiently(stop, self._clock, unless_gone(self._say))
        except (KeyboardInterrupt, TrainerError) as error:
            raise self._left_running(error) from error
        return Ended(f"stopped {self._id}", STOPPED)

    def _left_running(self, error: BaseException) -> AwsError:
        """`error`, with the command that stops the build."""
        stop = stop_by_hand(self._id or "ID", self._aws.region)
        return AwsError(
            f"{error or 'interrupted again:'} The build may run for {LIMIT_MINUTES} minutes; stop it with {stop}"
        )


def _is_progress(line: str) -> bool:
    return _PROGRESS.match(line) is not None


def _may_pass(error: TrainerError) -> bool:
    return getattr(error, "aws_code", "") not in DENIED
