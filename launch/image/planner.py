"""Source + facts -> what is done to have the image in the repository.  Pure."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from launch.core.names import TOOLKIT, bucket_of, client_token
from launch.core.plan import FromAnswer, Plan, Request
from launch.image import codebuild, engines
from launch.image.codebuild import Order
from launch.image.facts import BUILT_ON, Facts, short
from launch.image.lookup import MANIFESTS, region_of
from launch.image.options import Builder, BuildOptions, Program, PushOptions
from launch.image.source import Source
from trainer.errors import SettingsError, TrainerError

SOME_ACCOUNT = "123456789012"  # where there is none to ask
# Behind a digest.
MOVED = ", but its base has been patched since; --again builds anew"
PUSH_THERE = "python -m launch.image push --builder codebuild"


@dataclass(frozen=True)
class Making:
    """How an image is made here: the commands, and the registries that want a login first."""

    builder: Program
    build: list[str]
    push: list[str]
    hosts: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """All commands, to be read."""
        all_of = [engines.log_in(self.builder, host) for host in self.hosts] + [self.build, self.push]
        return [shlex.join(words) for words in [*all_of, *(engines.log_out(self.builder, h) for h in self.hosts)]]


@dataclass(frozen=True)
class Image:
    """What a plan leads to.  uri: registry and repository.

    making: an Order if CodeBuild makes it; None if it is there already; remark: on one that is.
    """

    uri: str
    making: Making | Order | None
    moves: tuple[Request, ...]
    remark: str = ""


def checked(builder: Builder | None, options: BuildOptions) -> Program:
    """The program that builds here.  Raises SettingsError if there is none."""
    if builder == "codebuild":
        raise SettingsError(
            f"CodeBuild builds only what is pushed: {PUSH_THERE}, or build with a program that is here."
        )
    if builder is not None:
        return builder
    if options.builder:
        raise SettingsError(f"there is no {options.builder} here; install it, or leave --builder out.")
    raise SettingsError(f"there is no docker, podman or buildah here; install one of them, or {PUSH_THERE}.")


def local_name(source: Source) -> str:
    return f"{TOOLKIT}:{source.tag}"


def plan_build(source: Source, builder: Program) -> Plan:
    """The plan for an image on this machine."""
    line = shlex.join(engines.build(builder, source, local_name(source)))
    return Plan(
        f"image {local_name(source)}, on this machine",
        _facts_rows(source, builder),
        (),
        (("here", "nothing"),),
        arguments=(("command:", {builder: line}),),
    )


def plan_push(options: PushOptions, source: Source, facts: Facts, now: datetime) -> Plan:
    """The plan for an image in the account's repository."""
    host = f"{facts.account or SOME_ACCOUNT}.dkr.ecr.{facts.region}.amazonaws.com"
    uri, needed = f"{host}/{options.repository}", not facts.there or options.again
    making = _making(source, facts, uri, now) if needed else None
    ordered = isinstance(making, Order)
    moves = () if facts.there and facts.alias == facts.there and not needed else _moves(options, source, facts, needed)
    rows = (
        ("account", facts.account or f"never looked up; {SOME_ACCOUNT} stands for it"),
        ("repository", uri),
        *_facts_rows(source, _builder_row(options, facts)),
        ("there", (facts.there or ("no" if facts.account else "not known")) + (MOVED if facts.base_moved else "")),
    )
    kept = "0.10 USD per GB and month; the first push uploads the base as well"
    return Plan(
        f"image {options.repository}:{source.tag}, in {facts.region}",
        rows,
        _steps(making),
        (*([codebuild.price()] if ordered else []), ("in the repository", kept)),
        problems=(*facts.problems, *(_problems(options, facts) if needed else ())),
        later=(*(codebuild.later() if ordered else ()), *((("once it is there:", moves),) if moves else ())),
        arguments=(_commands(making),) if making else (),
        inner=Image(uri, making, moves, MOVED if facts.base_moved and not needed else ""),
    )


def inner(made: Plan) -> Image:
    """What plan_push() left for whoever carries it out."""
    image = made.inner
    assert isinstance(image, Image)
    return image


def _problems(options: PushOptions, facts: Facts) -> Iterator[TrainerError]:
    if facts.builder == "codebuild":
        if options.repository != TOOLKIT:
            yield SettingsError(
                f"CodeBuild may push to {TOOLKIT} only, not to {options.repository}; leave --repository out, or build "
                "where docker is."
            )
        return
    try:
        checked(facts.builder, options)
    except SettingsError as error:
        yield error


def _making(source: Source, facts: Facts, uri: str, now: datetime) -> Making | Order:
    name, hosts = f"{uri}:{source.tag}", _hosts(source, uri.partition("/")[0])
    if facts.context is None:
        # The first of them, where there is none.
        here = None if facts.builder == "codebuild" else facts.builder
        program = here or engines.PROGRAMS[0]
        build = engines.build(program, source, name, fresh=bool(facts.base))
        return Making(program, build, engines.push(program, name), hosts)
    given = codebuild.variables(source, name, {host: str(region_of(host)) for host in hosts})
    bucket = bucket_of(facts.account or SOME_ACCOUNT, facts.region)
    # Another command is another build, also of the same content: the first may have failed.
    token = client_token(name, facts.context.key, now.isoformat())
    return codebuild.order(given, facts.context, bucket, token, uploaded=facts.uploaded)


def _steps(making: Making | Order | None) -> tuple[Request, ...]:
    if isinstance(making, Order):
        return making.steps
    return tuple(_log_in(host) for host in making.hosts) if making else ()


def _hosts(source: Source, host: str) -> tuple[str, ...]:
    """The registries that want a login of AWS's."""
    base = source.base.partition("/")[0]
    return tuple(dict.fromkeys([host, base] if region_of(base) else [host]))


def _commands(making: Making | Order) -> tuple[str, dict[str, str]]:
    """What is run, under a heading."""
    if isinstance(making, Order):
        return "infra/container/buildspec.yaml runs there:", dict(making.variables)
    return "commands, each password on standard input:", dict(_numbered(making))


def _log_in(host: str) -> Request:
    return Request("ecr", "GetAuthorizationToken", {}, f"get a password for {host}, good for 12 hours")


def _moves(options: PushOptions, source: Source, facts: Facts, made: bool) -> tuple[Request, ...]:
    """What lets the moving tag name the image, without another upload, and notes its base if that was `made` now."""
    repository, tags = options.repository, [source.alias]
    if made and facts.base:
        tags.append(f"{source.tag}{BUILT_ON}{short(facts.base)}")
    get = Request(
        "ecr",
        "BatchGetImage",
        {"repositoryName": repository, "imageIds": [{"imageTag": source.tag}], "acceptedMediaTypes": [*MANIFESTS]},
        "get the image's manifest",
        name="image",
    )
    manifest = FromAnswer("image", "images[0].imageManifest")
    puts = (
        Request(
            "ecr",
            "PutImage",
            {"repositoryName": repository, "imageManifest": manifest, "imageTag": tag},
            f"let {tag} name it, too",
            done_already=("ImageAlreadyExistsException",),
        )
        for tag in tags
    )
    return get, *puts


def _builder_row(options: PushOptions, facts: Facts) -> str:
    if facts.builder == "codebuild" and not options.builder:
        return "codebuild, for there is no docker, podman or buildah here"
    return facts.builder or engines.PROGRAMS[0]


def _facts_rows(source: Source, builder: str) -> tuple[tuple[str, str], ...]:
    return (
        ("target", source.target),
        ("base", source.base),
        ("content", source.content),
        ("builder", builder),
    )


def _numbered(making: Making) -> list[tuple[str, str]]:
    return [(str(number), line) for number, line in enumerate(making.lines, 1)]
