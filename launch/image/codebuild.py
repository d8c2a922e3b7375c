"""CodeBuild, which builds where there is no docker: its requests, what they cost, what the end of a build means.  Pure.

The commands are those of engines.py; infra/container/buildspec.yaml runs them, in the project that launch.infra makes.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launch.core.errors import AwsError
from launch.core.lookup import SET_UP
from launch.core.names import TOOLKIT
from launch.core.plan import FromAnswer, Request
from launch.core.price import usd
from launch.image import engines
from launch.image.context import Context
from launch.image.source import Source

PROJECT, LOG_GROUP = f"{TOOLKIT}-images", f"/{TOOLKIT}/images"
# As account.yaml has it.  USD of us-east-1 for BUILD_GENERAL1_SMALL, from AWS's price page as remembered on 2026-11-21.
LIMIT_MINUTES, USD_PER_MINUTE = 60, 0.005
LOOK_EVERY_S = 10.0

RUNNING, DONE = "IN_PROGRESS", "SUCCEEDED"
# Before any command of ours.
_BEGINNING = ("SUBMITTED", "QUEUED", "PROVISIONING", "DOWNLOAD_SOURCE")

Build = Mapping[str, Any]  # as CodeBuild describes it


@dataclass(frozen=True)
class Order:
    """What has CodeBuild make an image.  upload: None if the context is in the bucket; variables: the build's."""

    upload: Request | None
    start: Request
    variables: Mapping[str, str]

    @property
    def steps(self) -> tuple[Request, ...]:
        return (self.upload, self.start) if self.upload else (self.start,)


def variables(source: Source, name: str, regions: Mapping[str, str]) -> dict[str, str]:
    """What the buildspec wants for the image called `name`.  regions: of the registries that want a login."""
    log_in = [
        f"{shlex.join(engines.password(region))} | {shlex.join(engines.log_in('docker', host))}"
        for host, region in regions.items()
    ]
    return {
        "LOG_IN": " && ".join(log_in),
        # The context is where the commands start.
        "BUILD": shlex.join(engines.build("docker", replace(source, folder=Path()), name)),
        "PUSH": shlex.join(engines.push("docker", name)),
        **engines.environment({}),
    }


def order(given: Mapping[str, str], context: Context, bucket: str, token: str, *, uploaded: bool) -> Order:
    """token: the same for the same build, and of no other: CodeBuild starts one for each, even if it is asked twice."""
    upload = Request(
        "s3",
        "PutObject",
        {"Bucket": bucket, "Key": context.key, "Body": context.content, "ContentType": "application/zip"},
        "upload what the image is made of",
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
        "have CodeBuild build and push it",
        name="build",
    )
    return Order(None if uploaded else upload, start, given)


def later() -> tuple[tuple[str, tuple[Request, ...]], ...]:
    """What is asked for while it builds."""
    build, stream = FromAnswer("build", "build.id"), FromAnswer("build", "build.logs.streamName")
    return (
        (
            f"every {LOOK_EVERY_S:g} seconds until the build is over:",
            (
                Request("codebuild", "BatchGetBuilds", {"ids": [build]}, "how far it is"),
                Request(
                    "logs",
                    "FilterLogEvents",
                    {"logGroupName": LOG_GROUP, "logStreamNamePrefix": stream, "startTime": 0},
                    "what it says",
                ),
            ),
        ),
        ("at Ctrl-C:", (Request("codebuild", "StopBuild", {"id": build}, "end the build"),)),
    )


def price() -> tuple[str, str]:
    """For the plan."""
    most = usd(LIMIT_MINUTES * USD_PER_MINUTE)
    return "the build", f"{USD_PER_MINUTE} USD a minute, at most {most} in {LIMIT_MINUTES} minutes; then it is ended"


def stop_by_hand(build_id: str, region: str) -> str:
    return f"aws codebuild stop-build --id {build_id} --region {region}"


def stream_of(build_id: str) -> str:
    """The log stream of a build: it has the part of its id behind the project's name."""
    return build_id.partition(":")[2]


def failure(build: Build, region: str) -> AwsError:
    """Why a build that is over made no image: one sentence, and what to do."""
    status = build["buildStatus"]
    log = f"aws logs tail {LOG_GROUP} --since 1d --log-stream-names {stream_of(build['id'])} --region {region}"
    again, where = "start the same command again", f"its whole log: {log}"
    phase, why = _failed_phase(build)
    if status == "STOPPED":
        words = f"somebody else stopped the build; {again}"
    elif status == "TIMED_OUT":
        words = (
            f"the build was not done after {LIMIT_MINUTES} minutes and was ended, in {phase}; take a smaller --base, "
            f"or build where docker is; {where}"
        )
    elif status == "FAULT":
        words = f"CodeBuild itself failed in {phase}{why}; {again}"
    elif phase in _BEGINNING:
        words = f"the build could not begin, in {phase}{why}; run {SET_UP}, and {again}"
    else:
        words = f"the build failed in {phase}{why}; {where}"
    return AwsError(f"{words}.", status)


def _failed_phase(build: Build) -> tuple[str, str]:
    """Its name, and what CodeBuild says of it behind a colon."""
    for phase in build.get("phases", ()):
        if phase.get("phaseStatus", DONE) not in (DONE, RUNNING):
            said = [" ".join(context.get("message", "").split()) for context in phase.get("contexts", ())]
            return phase["phaseType"], "".join(f": {message.rstrip('.')}" for message in said if message)
    return build.get("currentPhase", "an unknown phase"), ""
