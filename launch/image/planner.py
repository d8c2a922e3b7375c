"""Source + facts -> the plan that brings an image into the repository.  Pure."""

import re
import shlex
from dataclasses import dataclass
from datetime import datetime, timedelta

from launch.aws.lookup import MANIFESTS
from launch.aws.names import TOOLKIT, bucket_of, client_token
from launch.aws.refusals import BUILDS, increase_by_name
from launch.core.clock import duration
from launch.core.errors import AwsError
from launch.core.plan import Fact, FromAnswer, Plan, Request
from launch.core.price import usd
from launch.image import codebuild, engines
from launch.image.codebuild import RemoteBuild
from launch.image.lookup import BUILT_ON, Facts, has_codebuild, region_of, short
from launch.image.options import Builder, BuildOptions, Program, PushOptions
from launch.image.source import Source
from trainer.errors import SettingsError, TrainerError

SOME_ACCOUNT = "123456789012"  # of a plan that is made without one
# After a digest.
OUTDATED = ", but its base has been updated since; --again rebuilds it"
PUSH_THERE = "python -m launch.image push --builder codebuild"
STORAGE = Fact(
    "repository",
    {"usd_per_gb_month": 0.10},
    "0.10 USD per GB and month; the first push uploads the base as well",
)


@dataclass(frozen=True)
class LocalBuild:
    """Builds and pushes an image on this machine."""

    builder: Program
    build: list[str]
    push: list[str]
    hosts: tuple[str, ...]  # the registries that need a login

    @property
    def lines(self) -> list[str]:
        """All commands, in their order."""
        log_ins = [engines.log_in(self.builder, host) for host in self.hosts]
        log_outs = [engines.log_out(self.builder, host) for host in self.hosts]
        return [shlex.join(command) for command in (*log_ins, self.build, self.push, *log_outs)]


@dataclass(frozen=True)
class Push:
    """How an image gets into the repository."""

    uri: str  # registry and repository
    build: LocalBuild | RemoteBuild | None  # None if the content is there
    retags: tuple[Request, ...]  # requests that move the tags to it
    remark: str  # about an image that is there


def checked(builder: Builder | None, options: BuildOptions) -> Program:
    """The program that builds on this machine.  Raises SettingsError if there is none."""
    if builder == "codebuild":
        raise SettingsError(f"CodeBuild pushes what it builds: use {PUSH_THERE}, or a builder on this machine.")
    if builder is not None:
        return builder
    if options.builder:
        raise SettingsError(f"{options.builder} is not installed; install it, or leave --builder out.")
    raise SettingsError(f"docker, podman and buildah are not installed; install one of them, or use {PUSH_THERE}.")


def local_name(source: Source) -> str:
    return f"{TOOLKIT}:{source.tag}"


def plan_build(source: Source, builder: Program) -> Plan[None]:
    """The plan for an image on this machine."""
    name = local_name(source)
    command = tuple(engines.build(builder, source, name))
    return Plan(f"image {name}, on this machine", None, _content(source, Fact("builder", builder)), command=command)


def plan_push(options: PushOptions, source: Source, facts: Facts, now: datetime) -> Plan[Push]:
    """The plan for an image in the account's repository."""
    uri = f"{facts.account or SOME_ACCOUNT}.dkr.ecr.{facts.region}.amazonaws.com/{options.repository}"
    push = _push(options, source, facts, uri, now)
    return Plan(
        title=f"image {options.repository}:{source.tag}, in {facts.region}",
        payload=push,
        facts=_shown(options, source, facts, uri),
        steps=_steps(push.build),
        rates=(codebuild.rate(), STORAGE) if isinstance(push.build, RemoteBuild) else (STORAGE,),
        problems=facts.problems + (_problems(options, facts) if push.build else ()),
        later=_later(push),
        arguments=(_commands(push.build),) if push.build else (),
    )


def _push(options: PushOptions, source: Source, facts: Facts, uri: str, now: datetime) -> Push:
    if facts.image and not options.again:
        retags = _retags(options, source) if facts.alias != facts.image else ()
        return Push(uri, None, retags, OUTDATED if facts.base_moved else "")
    build = _remote(source, facts, uri, now) or _local(source, facts, uri)
    return Push(uri, build, _retags(options, source, facts.base), "")


def _problems(options: PushOptions, facts: Facts) -> tuple[TrainerError, ...]:
    """Why this builder cannot push there."""
    if facts.builder == "codebuild":
        if not has_codebuild(facts.region):
            return (SettingsError(f"AWS has no CodeBuild in {facts.region}; install docker, podman or buildah."),)
        if options.repository != TOOLKIT:
            problem = SettingsError(
                f"CodeBuild may push only to {TOOLKIT}, not to {options.repository}; leave --repository out, or build "
                "on a machine with docker."
            )
            return (problem,)
        if facts.builds is not None and facts.builds < 1:
            return (_no_builds(facts.region),)
        return ()
    try:
        checked(facts.builder, options)
    except SettingsError as error:
        return (error,)
    return ()


def _no_builds(region: str) -> AwsError:
    """StartBuild would answer "Cannot have more than 0 builds in queue for the account"."""
    more = increase_by_name("codebuild", BUILDS, 1, region)
    return AwsError(
        f"the account's quota {BUILDS!r} is 0, as in new accounts; build on a machine with docker, or ask for more "
        f"with\n  {more}",
        "AccountLimitExceededException",
    )


def _later(push: Push) -> tuple[tuple[str, tuple[Request, ...]], ...]:
    """Requests during the build and after it, under headings."""
    during = codebuild.later() if isinstance(push.build, RemoteBuild) else ()
    return (*during, ("after the push:", push.retags)) if push.retags else during


# ---- building


def _local(source: Source, facts: Facts, uri: str) -> LocalBuild:
    # Without a builder the plan shows the first one, and has a problem.
    builder = facts.builder if facts.builder in engines.PROGRAMS else engines.PROGRAMS[0]
    name = f"{uri}:{source.tag}"
    build = engines.build(builder, source, name, base=_pinned(source, facts))
    return LocalBuild(builder, build, engines.push(builder, name), tuple(_log_in_regions(source, uri)))


def _pinned(source: Source, facts: Facts) -> str:
    """The base by its looked-up digest, so that it cannot change meanwhile; "" without one."""
    name = re.sub(r":[^:/]*$", "", source.base)  # without its tag, if it has one
    return f"{name}@{facts.base}" if facts.base else ""


def _remote(source: Source, facts: Facts, uri: str, now: datetime) -> RemoteBuild | None:
    """The build by CodeBuild; None if that is not the builder."""
    if facts.context is None:
        return None
    name = f"{uri}:{source.tag}"
    given = codebuild.variables(source, name, _log_in_regions(source, uri), _pinned(source, facts))
    bucket = bucket_of(facts.account or SOME_ACCOUNT, facts.region)
    # Each command starts a build of its own, even of the same content: an earlier one may have failed.
    token = client_token(name, facts.context.key, now.isoformat())
    return codebuild.remote_build(given, facts.context, bucket, token, is_uploaded=facts.is_uploaded)


def _log_in_regions(source: Source, uri: str) -> dict[str, str]:
    """{registry: region} of those that need an AWS login: the repository's, and the base's if it is in ECR."""
    hosts = (uri.partition("/")[0], source.base.partition("/")[0])
    regions = {host: region_of(host) for host in hosts}
    return {host: region for host, region in regions.items() if region}


def _steps(build: LocalBuild | RemoteBuild | None) -> tuple[Request, ...]:
    if isinstance(build, RemoteBuild):
        return build.steps
    return tuple(_log_in(host) for host in build.hosts) if build else ()


def _log_in(host: str) -> Request:
    return Request("ecr", "GetAuthorizationToken", {}, f"get a password for {host}, valid for 12 hours")


def _commands(build: LocalBuild | RemoteBuild) -> tuple[str, dict[str, str]]:
    """The commands of the build, under a heading."""
    if isinstance(build, RemoteBuild):
        return "variables of infra/container/buildspec.yaml:", dict(build.variables)
    lines = {str(number): line for number, line in enumerate(build.lines, 1)}
    return "commands, each password on standard input:", lines


# ---- tags


def _retags(options: PushOptions, source: Source, base: str = "") -> tuple[Request, ...]:
    """Tags the image without another upload: with the moving tag, and with one that records its base, if given."""
    tags = [source.alias, f"{source.tag}{BUILT_ON}{short(base)}"] if base else [source.alias]
    get = Request(
        "ecr",
        "BatchGetImage",
        {
            "repositoryName": options.repository,
            "imageIds": [{"imageTag": source.tag}],
            "acceptedMediaTypes": [*MANIFESTS],
        },
        "get the image's manifest",
        name="image",
    )
    return get, *(_retag(options.repository, tag) for tag in tags)


def _retag(repository: str, tag: str) -> Request:
    manifest = FromAnswer("image", "images[0].imageManifest")
    params = {"repositoryName": repository, "imageManifest": manifest, "imageTag": tag}
    return Request("ecr", "PutImage", params, f"tag it {tag}", done_already=("ImageAlreadyExistsException",))


# ---- what is shown


def _shown(options: PushOptions, source: Source, facts: Facts, uri: str) -> tuple[Fact, ...]:
    account = facts.account or f"not looked up; {SOME_ACCOUNT} stands in for it"
    image = facts.image or ("no" if facts.account else "not looked up")
    return (
        Fact("account", facts.account or None, account),
        Fact("repository", uri),
        *_content(source, _builder(options, facts)),
        *_transfers(options, facts),
        Fact("image", facts.image or None, image + (OUTDATED if facts.base_moved else ""), label="in repository"),
    )


def _content(source: Source, builder: Fact) -> tuple[Fact, ...]:
    return Fact("target", source.target), Fact("base", source.base), Fact("content", source.content), builder


def _transfers(options: PushOptions, facts: Facts) -> tuple[Fact, ...]:
    """Size and time on this machine and by CodeBuild, for an image that is not there yet."""
    moved = facts.transfers
    if moved is None or (facts.image and not options.again):
        return ()
    local = facts.installed or engines.PROGRAMS[0]
    pulls = f"pulls {moved.base_gb:g} GB unless it has them"
    pushes = f"pushes {moved.push_gb:.3g} GB: {_minutes(moved.here_min)} at {options.upload_mbit_s:g} Mbit/s"
    by_codebuild = usd(moved.codebuild_min * codebuild.USD_PER_MINUTE)
    there = f"{_minutes(moved.codebuild_min)} inside AWS, about {by_codebuild}"
    if not has_codebuild(facts.region):
        there = f"AWS has none in {facts.region}"
    value = {"pull_gb": moved.base_gb, "push_gb": moved.push_gb, "upload_min": round(moved.here_min, 1)}
    return (
        Fact("here", value, f"{pulls}, {pushes} (--upload-mbit-s)", label=f"{local} here"),
        Fact("codebuild", {"min": moved.codebuild_min}, there, label="CodeBuild"),
    )


def _minutes(minutes: float) -> str:
    return duration(timedelta(minutes=minutes))


def _builder(options: PushOptions, facts: Facts) -> Fact:
    builder = facts.builder or engines.PROGRAMS[0]
    if builder == "codebuild" and not options.builder:
        if facts.installed:
            text = f"codebuild, because the upload by {facts.installed} would take longer; --builder {facts.installed}"
            return Fact("builder", builder, text)
        return Fact("builder", builder, "codebuild, because docker, podman and buildah are not installed")
    return Fact("builder", builder)
