"""The command lines of docker, podman and buildah.  Pure.  No password is ever in one: it goes to standard input."""

from collections.abc import Mapping
from typing import get_args

from launch.image.options import Program
from launch.image.source import Source

PROGRAMS: tuple[Program, ...] = get_args(Program)
# Nodes and SageMaker's instances are x86, whatever builds.
PLATFORM = "linux/amd64"
# As in the Dockerfile: the time in every file, for those who would otherwise put in today's.
EPOCH = "315532800"


def build(builder: Program, source: Source, name: str, *, fresh: bool = False) -> list[str]:
    """Builds an image called `name`.  fresh: on the base as its registry has it, also where an older one is here."""
    return [
        builder, "build", "--platform", PLATFORM,
        # docker's own format has a place for HEALTHCHECK, and SageMaker takes it.
        *([] if builder == "docker" else ["--format", "docker", "--timestamp", EPOCH]),
        *(["--pull" if builder == "docker" else "--pull=always"] if fresh else []),
        "--target", source.target,
        *(["--build-arg", f"BASE_IMAGE={source.base}"] if source.own_base else []),
        "--build-arg", f"REVISION={source.content}",
        "--tag", name,
        str(source.folder),
    ]  # fmt: skip


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """For all of these commands.

    By BuildKit, which the Dockerfile's mounts take, and docker before 23 uses only if told.  Without attestations,
    which make an image a list of two, and SageMaker refuses it.
    """
    return {**env, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


def push(builder: Program, name: str) -> list[str]:
    """Uploads the layers that the registry lacks."""
    return [builder, "push", name] if builder == "docker" else [builder, "push", name, f"docker://{name}"]


def log_in(builder: Program, host: str) -> list[str]:
    """Reads the password from standard input."""
    return [builder, "login", "--username", "AWS", "--password-stdin", host]


def password(region: str) -> list[str]:
    """Says the password, on a machine that has AWS's command line and not us."""
    return ["aws", "ecr", "get-login-password", "--region", region]


def log_out(builder: Program, host: str) -> list[str]:
    """Forgets the password, which docker may have written to a file."""
    return [builder, "logout", host]


def try_out(builder: Program, name: str) -> str:
    """What to type next."""
    runs = "podman" if builder == "buildah" else builder
    return f"{runs} run --rm {name} --model cnn --dataset digits --epochs 1"
