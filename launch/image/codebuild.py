"""CodeBuild, for machines without docker: its requests, their price, and why a build failed.  Pure.

The commands are those of engines.py; infra/container/buildspec.yaml runs them in the project that launch.infra creates.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launch.core.errors import AwsError
from launch.core.lookup import SET_UP
from launch.core.names import TOOLKIT
from launch.core.plan import Fact
from launch.core.price import usd
from launch.core.steps import FromAnswer, Request
from launch.image import engines
from launch.image.context import Context
from launch.image.source import Source

PROJECT, LOG_GROUP = f"{TOOLKIT}-images", f"/{TOOLKIT}/images"
# As in account.yaml.  Price of BUILD_GENERAL1_SMALL in us-east-1, from AWS's page as remembered on 2026-11-21.
LIMIT_MINUTES, USD_PER_MINUTE = 60, 0.005
LOOK_EVERY_S = 10.0

RUNNING, DONE = "IN_PROGRESS", "SUCCEEDED"
# Phases before our commands.
_BEGINNING = ("SUBMITTED", "QUEUED", "PROVISIONING", "DOWNLOAD_SOURCE")

Description = Mapping[str, Any]  # CodeBuild's, of a build


@dataclass(frozen=True)
class RemoteBuild:
    """Has CodeBuild build and push an image.  upload: None if the context is in the bucket; variables: the build's."""

    upload: Request | None
    start: Request
    variables: Mapping[str, str]

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
    """token: the same for a repeated request, which then starts no second build; another for another build."""
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
        sentence = f"somebody else stopped the build; {retry}"
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
