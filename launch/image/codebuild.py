"""CodeBuild, for machines without docker: its requests, their price, following a build, and why it failed.

The commands are those of engines.py; infra/container/buildspec.yaml runs them in the project that launch.infra creates.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from launch.aws.client import Aws
from launch.aws.logs import LogDisplay, LogTail, Streams
from launch.aws.lookup import SET_UP
from launch.aws.names import TOOLKIT
from launch.aws.refusals import DENIED
from launch.aws.retry import Retry, retrying
from launch.core.clock import Clock, duration
from launch.core.errors import AwsError, Ended, NoAnswer
from launch.core.perform import perform
from launch.core.plan import Fact, FromAnswer, Request
from launch.core.price import usd
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from launch.core.terminal import Say
from launch.image import engines
from launch.image.source import Context, Source
from trainer.contract import STOPPED
from trainer.errors import TrainerError

PROJECT, LOG_GROUP = f"{TOOLKIT}-images", f"/{TOOLKIT}/images"
# As in account.yaml.  Price of BUILD_GENERAL1_SMALL in us-east-1, from AWS's page as of 2026-11-21.
LIMIT_MINUTES, USD_PER_MINUTE = 60, 0.005
LOOK_EVERY_S = 10.0

RUNNING, DONE = "IN_PROGRESS", "SUCCEEDED"
# Phases before the commands of the buildspec.
_BEGINNING = ("SUBMITTED", "QUEUED", "PROVISIONING", "DOWNLOAD_SOURCE")

Description = Mapping[str, Any]  # CodeBuild's, of a build


@dataclass(frozen=True)
class RemoteBuild:
    """Has CodeBuild build and push an image."""

    upload: Request | None  # None if the context is in the bucket
    start: Request
    variables: Mapping[str, str]  # of the build

    @property
    def steps(self) -> tuple[Request, ...]:
        return (self.upload, self.start) if self.upload else (self.start,)


def variables(source: Source, name: str, regions: Mapping[str, str], base: str = "") -> dict[str, str]:
    """The buildspec's variables for an image called `name`.

    regions: of the registries that need an AWS login; base: as in engines.build().
    """
    log_ins = list[str]()
    for host, region in regions.items():
        log_ins.append(f"{shlex.join(engines.password(region))} | {shlex.join(engines.log_in('docker', host))}")
    return {
        "LOG_IN": " && ".join(log_ins),
        # The commands run in the context's folder.
        "BUILD": shlex.join(engines.build("docker", replace(source, folder=Path()), name, base=base)),
        "PUSH": shlex.join(engines.push("docker", name)),
        **engines.environment({}),
    }


def remote_build(
    given: Mapping[str, str], context: Context, bucket: str, token: str, *, is_uploaded: bool
) -> RemoteBuild:
    """The requests of a build.  token: equal for a repeated request, which then starts no second build."""
    upload = Request(
        "s3",
        "PutObject",
        {"Bucket": bucket, "Key": context.key, "Body": context.content, "ContentType": "application/zip"},
        "upload the build context",
    )
    start = Request(
        "codebuild",
        "StartBuild",
        {
            "projectName": PROJECT,
            "sourceTypeOverride": "S3",
            "sourceLocationOverride": f"{bucket}/{context.key}",
            "environmentVariablesOverride": [
                {"name": name, "value": value, "type": "PLAINTEXT"} for name, value in given.items()
            ],
            "idempotencyToken": token,
        },
        "have CodeBuild build and push the image",
        name="build",
    )
    return RemoteBuild(None if is_uploaded else upload, start, given)


def later() -> tuple[tuple[str, tuple[Request, ...]], ...]:
    """Requests during the build, under headings."""
    build, stream = FromAnswer("build", "build.id"), FromAnswer("build", "build.logs.streamName")
    events = {"logGroupName": LOG_GROUP, "logStreamNamePrefix": stream, "startTime": 0}
    polls = (
        Request("codebuild", "BatchGetBuilds", {"ids": [build]}, "get the build's state"),
        Request("logs", "FilterLogEvents", events, "get its log"),
    )
    stop = Request("codebuild", "StopBuild", {"id": build}, "stop the build")
    return (f"every {LOOK_EVERY_S:g} seconds until the build ends:", polls), ("at Ctrl-C:", (stop,))


def rate() -> Fact:
    """The price of a build."""
    most_usd = LIMIT_MINUTES * USD_PER_MINUTE
    value = {"usd_per_minute": USD_PER_MINUTE, "most_usd": most_usd, "most_minutes": LIMIT_MINUTES}
    text = f"{USD_PER_MINUTE} USD per minute, at most {usd(most_usd)} in {LIMIT_MINUTES} minutes; then AWS stops it"
    return Fact("build", value, text)


def stop_by_hand(build_id: str, region: str) -> str:
    return f"aws codebuild stop-build --id {build_id} --region {region}"


def stream_of(build_id: str) -> str:
    """The log stream of a build: its id without the project's name."""
    return build_id.partition(":")[2]


def failure(build: Description, region: str) -> AwsError:
    """Why a finished build made no image, and what to do."""
    status = build["buildStatus"]
    retry = "run the same command again"
    log = f"aws logs tail {LOG_GROUP} --since 1d --log-stream-names {stream_of(build['id'])} --region {region}"
    phase, reason = _failed_phase(build)
    if status == "STOPPED":
        sentence = f"the build was stopped from outside; {retry}"
    elif status == "TIMED_OUT":
        sentence = (
            f"AWS stopped the build after {LIMIT_MINUTES} minutes, in {phase}; use a smaller --base, or build on a "
            f"machine with docker; full log: {log}"
        )
    elif status == "FAULT":
        sentence = f"CodeBuild itself failed in {phase}{reason}; {retry}"
    elif phase in _BEGINNING:
        sentence = f"the build could not start, in {phase}{reason}; run {SET_UP}, and {retry}"
    else:
        sentence = f"the build failed in {phase}{reason}; full log: {log}"
    return AwsError(f"{sentence}.", status)


def _failed_phase(build: Description) -> tuple[str, str]:
    """Its name, and CodeBuild's messages, each after a colon."""
    for phase in build.get("phases", ()):
        if phase.get("phaseStatus", DONE) not in (DONE, RUNNING):
            messages = [" ".join(context.get("message", "").split()) for context in phase.get("contexts", ())]
            return phase["phaseType"], "".join(f": {message.rstrip('.')}" for message in messages if message)
    return build.get("currentPhase", "an unknown phase"), ""


# ---- following a build

# How long to retry while AWS is unreachable.
RETRY_S = 300.0
LAST_LINES = 20
INDENT = " " * 10
# docker's lines that show progress: a step starts, a layer is uploaded, the push is complete.
_PROGRESS = re.compile(r" *(#\d+ \[|[0-9a-f]{12}: (Pushed|Layer already exists)|\S+: digest: sha256:)")


class Watch:
    """One build, from its start to its end.  If this program ends, it stops the build."""

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
        """Request the build and return its id.  A repeated request returns the same build, by its token."""
        answers = perform((self._remote.start,), self._aws.call, unless_gone(self._say), self._clock.sleep)
        return str(answers["build"]["build"]["id"])

    def _follow(self) -> tuple[Description, list[str]]:
        """Show progress; return the finished build and its log.  Raises AwsError after RETRY_S of failures."""
        streams = Streams(LOG_GROUP, stream_of(self._id), rewrite=lambda line: INDENT + line)
        log = LogDisplay(LogTail(self._aws, streams), self._clock, self._say, _is_progress, LOOK_EVERY_S)
        try:
            build = self._wait(log)
        except AwsError as error:
            raise self._left_running(error) from error
        log.drain()
        return build, [line.removeprefix(INDENT) for line in log.lines if line.strip()]

    def _wait(self, log: LogDisplay) -> Description:
        retry, started = Retry(self._clock, RETRY_S, _is_transient), self._clock.now()
        while True:
            try:
                build = self._look()
            except AwsError as error:
                retry.failure(error)
                log.warn(f"{error} Trying again")
            else:
                retry.success()
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
                retrying(stop, self._clock, unless_gone(self._say))
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


def _is_transient(error: TrainerError) -> bool:
    return getattr(error, "aws_code", "") not in DENIED
