"""The verbs build, push and show: each looks up, decides in planner.py, and acts here."""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.aws.client import Aws
from launch.aws.lookup import region_or_some
from launch.core import shell
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.perform import perform
from launch.core.plan import dry_run
from launch.core.terminal import Say, table
from launch.image import engines, planner
from launch.image.codebuild import Watch
from launch.image.lookup import Which, digest_of, find_builder, look_up, region_of
from launch.image.options import BuildOptions, Program, PushOptions, ShowOptions
from launch.image.planner import LocalBuild
from launch.image.source import Source, read_source
from trainer.contract import Exit
from trainer.errors import MachineError


@dataclass(frozen=True)
class Runtime:
    """What the commands need from outside."""

    make_aws: Callable[[str | None], Aws]  # calls to a region, None for the configured one
    checkout: Path  # the Dockerfile's folder
    which: Which
    env: Mapping[str, str]  # of the builder's commands
    say: Say
    clock: Clock


class Commands:
    """Each verb takes its options and returns the exit code."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._say = runtime, runtime.say

    def build(self, options: BuildOptions) -> int:
        """Builds the image on this machine."""
        source = self._source(options)
        builder = planner.checked(find_builder(options, self._runtime.which), options)
        if options.dry_run:
            return dry_run(planner.plan_build(source, builder), options.dry_run, self._say)
        name = planner.local_name(source)
        host = source.base.partition("/")[0]
        with self._logged_in(builder, (host,) if region_of(host) else ()):
            self._run(engines.build(builder, source, name))
        self._say(f"built: {name}\ntry it: {engines.try_out(builder, name, source.target)}")
        return Exit.DONE

    def push(self, options: PushOptions) -> int:
        """Push the image to the repository, with the tag of its content and the moving one."""
        runtime, source = self._runtime, self._source(options)
        aws = runtime.make_aws(options.region)
        facts = look_up(aws, options, source, runtime.which, runtime.make_aws)
        plan = planner.plan_push(options, source, facts, runtime.clock.utc())
        if options.dry_run:
            return dry_run(plan, options.dry_run, self._say)
        if plan.problem:
            raise plan.problem
        push = plan.payload
        if isinstance(push.build, LocalBuild):
            self._build_here(push.build)
        elif push.build:
            Watch(push.build, aws, runtime.clock, self._say).make()
        digest = digest_of(aws, options.repository, source.tag)
        if not digest:
            raise AwsError(
                f"the push succeeded, but {push.uri} has no {source.tag}; run the same command again.", "NotThere"
            )
        self._say(f"{'pushed' if push.build else 'already pushed'}: {digest}{push.remark}")
        perform(push.retags, aws.call, self._say)
        self._show_use(source, options.repository, f"{push.uri}@{digest}")
        return Exit.DONE

    def show(self, options: ShowOptions) -> int:
        """Lists the images of the repository, newest first."""
        aws = self._runtime.make_aws(options.region)
        digest_of(aws, options.repository, "latest")  # raises AwsError with a remedy if there is no repository
        images = aws.pages("ecr", "DescribeImages", "imageDetails", {"repositoryName": options.repository})
        if not images:
            self._say(f"{options.repository} in {aws.region} is empty; fill it: python -m launch.image push")
            return Exit.DONE
        newest_first = sorted(images, key=lambda image: image["imagePushedAt"], reverse=True)
        self._say(table(("tags", "pushed", "MB", "digest"), [_row(image) for image in newest_first]))
        return Exit.DONE

    # ---- parts of them

    def _source(self, options: BuildOptions) -> Source:
        region = region_or_some(self._runtime.make_aws(options.region))
        return read_source(self._runtime.checkout, options.target, options.base, region)

    def _build_here(self, local: LocalBuild) -> None:
        with self._logged_in(local.builder, local.hosts):
            self._run(local.build)
            self._run(local.push)

    def _show_use(self, source: Source, repository: str, image: str) -> None:
        if source.target == "launcher":
            self._say("make a queue that uses it, or update it: python -m launch.infra up --queue NAME")
            return
        launcher = "sagemaker" if source.target == "sagemaker" else "ec2"
        self._say(f"use it: python -m launch.{launcher} --image {image}")
        if source.target == "trainer":
            self._say(f"launch.ec2 uses it by default: {repository}:latest")

    @contextmanager
    def _logged_in(self, builder: Program, hosts: tuple[str, ...]) -> Iterator[None]:
        """Logs the builder in to these registries inside the block."""
        with ExitStack() as stack:
            for host in hosts:
                shell.output_of(engines.log_in(builder, host), self._password(host), self._runtime.env)
                stack.callback(self._log_out, builder, host)
            yield

    def _log_out(self, builder: Program, host: str) -> None:
        """A failure is a warning: the password expires after 12 hours, and the result of the build matters more."""
        try:
            shell.output_of(engines.log_out(builder, host), env=self._runtime.env)
        except MachineError as error:
            self._say(f"warning: {error}")

    def _password(self, host: str) -> str:
        """The password of the user AWS.  It must not get into a command line, a log or a plan."""
        answer = self._runtime.make_aws(region_of(host)).call("ecr", "GetAuthorizationToken")
        token = answer["authorizationData"][0]["authorizationToken"]
        return base64.b64decode(token).decode().partition(":")[2]

    def _run(self, command: list[str]) -> None:
        """Runs a builder; its output goes to this terminal.  Raises MachineError if it fails."""
        self._say("$ " + " ".join(command[:2]) + " ...")
        code = shell.run(command, engines.environment(self._runtime.env))
        if code:
            raise MachineError(f"{command[0]} {command[1]} ended with exit code {code}; its output is above.")


def _row(image: Mapping[str, Any]) -> tuple[str, str, str, str]:
    tags = ", ".join(sorted(image.get("imageTags", ()))) or "-"
    megabytes = image.get("imageSizeInBytes", 0) / 1e6
    return tags, f"{image['imagePushedAt']:%Y-%m-%d %H:%M}", f"{megabytes:,.0f}", image["imageDigest"]
