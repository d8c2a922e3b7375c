"""What build, push and show do: each looks up, decides in planner.py, and acts here."""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from launch.core import shell
from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError, NotSetUp
from launch.core.perform import perform, table
from launch.core.plan import Plan, as_json, as_text
from launch.image import engines, planner
from launch.image.lookup import Which, digest_of, find_builder, look_up, region_of
from launch.image.options import BuildOptions, Program, PushOptions, ShowOptions
from launch.image.planner import Making
from launch.image.source import Source, read_source
from launch.image.watch import Watch
from trainer.contract import Exit
from trainer.errors import MachineError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Acts:
    """make_aws: a region, or None for the configured one -> calls to it; checkout: where the Dockerfile is; which: the
    name of a program -> its path, None if it is not here; env: of the commands.
    """

    make_aws: Callable[[str | None], Aws]
    checkout: Path
    which: Which
    env: Mapping[str, str]
    say: Say
    clock: Clock

    def build(self, options: BuildOptions) -> int:
        """Builds the image on this machine."""
        source = self._source(options)
        builder = planner.checked(find_builder(options, self.which), options)
        if options.dry_run:
            return self._show(planner.plan_build(source, builder), options.dry_run)
        name = planner.local_name(source)
        host = source.base.partition("/")[0]
        with self._logged_in(builder, (host,) if region_of(host) else ()):
            self._run(engines.build(builder, source, name))
        self.say(f"built: {name}\ntry it: {engines.try_out(builder, name)}")
        return Exit.DONE

    def push(self, options: PushOptions) -> int:
        """Has the image in the repository, under its content's tag and the moving one."""
        source, aws = self._source(options), self.make_aws(options.region)
        made = planner.plan_push(
            options, source, look_up(aws, options, source, self.which, self.make_aws), self.clock.utc()
        )
        if options.dry_run:
            return self._show(made, options.dry_run)
        if made.problems:
            raise made.problems[0]
        image = planner.inner(made)
        if isinstance(image.making, Making):
            self._make(image.making)
        elif image.making:
            Watch(image.making, aws, self.clock, self.say).make()
        digest = digest_of(aws, options.repository, source.tag)
        if not digest:
            raise AwsError(f"the push ended well, but {image.uri} has no {source.tag}; start it again.", "NotThere")
        self.say(f"{'pushed' if image.making else 'already there'}: {digest}{image.remark}")
        perform(image.moves, aws.call, self.say)
        launcher = "sagemaker" if source.target == "sagemaker" else "ec2"
        self.say(f"use it: python -m launch.{launcher} --image {image.uri}@{digest}")
        if source.target == "trainer":
            self.say(f"launch.ec2 takes {options.repository}:latest, which is this one, unless told otherwise")
        return Exit.DONE

    def show(self, options: ShowOptions) -> int:
        """Says what the repository has, newest first."""
        aws = self.make_aws(options.region)
        digest_of(aws, options.repository, "latest")  # says what to do without a repository
        rows = aws.pages("ecr", "DescribeImages", "imageDetails", {"repositoryName": options.repository})
        rows = sorted(rows, key=lambda row: row["imagePushedAt"], reverse=True)
        shown = [
            (
                ", ".join(sorted(row.get("imageTags", ()))) or "-",
                f"{row['imagePushedAt']:%Y-%m-%d %H:%M}",
                f"{row.get('imageSizeInBytes', 0) / 1e6:,.0f}",
                row["imageDigest"],
            )
            for row in rows
        ]
        if not shown:
            self.say(f"{options.repository} in {aws.region} is empty; python -m launch.image push fills it")
            return Exit.DONE
        self.say(table(("tags", "pushed", "MB", "digest"), shown))
        return Exit.DONE

    # ---- parts of them

    def _source(self, options: BuildOptions) -> Source:
        return read_source(self.checkout, options.target, options.base)

    def _make(self, making: Making) -> None:
        with self._logged_in(making.builder, making.hosts):
            self._run(making.build)
            self._run(making.push)

    @contextmanager
    def _logged_in(self, builder: Program, hosts: tuple[str, ...]) -> Iterator[None]:
        """Meanwhile the builder may pull from and push to these registries."""
        with ExitStack() as stack:
            for host in hosts:
                shell.output_of(engines.log_in(builder, host), stdin=self._password(host))
                stack.callback(self._log_out, builder, host)
            yield

    def _log_out(self, builder: Program, host: str) -> None:
        """What the build came to matters more than that this fails: the password is good for 12 hours at most."""
        try:
            shell.output_of(engines.log_out(builder, host))
        except MachineError as error:
            self.say(f"warning: {error}")

    def _password(self, host: str) -> str:
        """Of the user AWS.  Never in a command line, a log or a plan."""
        answer = self.make_aws(region_of(host)).call("ecr", "GetAuthorizationToken")
        token = answer["authorizationData"][0]["authorizationToken"]
        return base64.b64decode(token).decode().partition(":")[2]

    def _run(self, command: list[str]) -> None:
        """Runs a builder to its end; what it says goes where ours goes.  Raises MachineError if it fails."""
        self.say("$ " + " ".join(command[:2]) + " ...")
        code = shell.run(command, engines.environment(self.env))
        if code:
            raise MachineError(f"{command[0]} {command[1]} ended with exit code {code}; its own words are above.")

    def _show(self, made: Plan, how: bool | str) -> int:
        self.say(as_json(made) if how == "json" else as_text(made))
        problem = made.problems[0] if made.problems else None
        return problem.code if problem and not isinstance(problem, NotSetUp) else Exit.DONE
