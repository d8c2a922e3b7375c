"""Command lines of docker, podman and buildah.  Pure.  Passwords go to standard input, never into a command line."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import get_args

from launch.aws.names import TOOLKIT
from launch.image.options import Program, Target
from launch.image.source import Source, base_argument

PROGRAMS: tuple[Program, ...] = get_args(Program)
# EC2 nodes and SageMaker's instances are x86, whatever machine builds.
PLATFORM = "linux/amd64"
# As in the Dockerfile: the time of every file, for builders that would use today's.
EPOCH = "315532800"


def build(builder: Program, source: Source, name: str, *, base: str = "") -> list[str]:
    """Builds an image called `name`.  base: with the digest that its tag names now; it is pulled anew."""
    return [
        builder, "build", "--platform", PLATFORM,
        # docker's own format supports HEALTHCHECK, and SageMaker accepts it.
        *([] if builder == "docker" else ["--format", "docker", "--timestamp", EPOCH]),
        *(["--pull" if builder == "docker" else "--pull=always"] if base else []),
        "--target", source.target,
        *(["--build-arg", f"{base_argument(source.target)}={base or source.base}"] if base or source.own_base else []),
        "--build-arg", f"REVISION={source.content}", "--build-arg", f"VERSION={version(TOOLKIT)}",
        *_labels(source, base or source.base),
        "--tag", name,
        str(source.folder),
    ]  # fmt: skip


def _labels(source: Source, base: str) -> list[str]:
    """Labels that only some images have; the Dockerfile has the labels of all.

    https://github.com/opencontainers/image-spec/blob/main/annotations.md
    """
    texts = {"source": source.url, "base.digest": base.partition("@")[2]}
    known = [f"org.opencontainers.image.{name}={text}" for name, text in texts.items() if text]
    return [word for label in known for word in ("--label", label)]


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Environment of these commands.

    BuildKit, because the Dockerfile uses its mounts and docker before 23 needs the variable.  No attestations, because
    they turn an image into a list of two, which SageMaker refuses.
    """
    return {**env, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


def push(builder: Program, name: str) -> list[str]:
    """Uploads the layers that the registry lacks."""
    return [builder, "push", name] if builder == "docker" else [builder, "push", name, f"docker://{name}"]


def log_in(builder: Program, host: str) -> list[str]:
    """Reads the password from standard input."""
    return [builder, "login", "--username", "AWS", "--password-stdin", host]


def password(region: str) -> list[str]:
    """Prints the password, on a machine that has AWS's command line but not this toolkit."""
    return ["aws", "ecr", "get-login-password", "--region", region]


def log_out(builder: Program, host: str) -> list[str]:
    """Deletes the stored password."""
    return [builder, "logout", host]


def try_out(builder: Program, name: str, target: Target) -> str:
    """A command that runs the image."""
    runs = "podman" if builder == "buildah" else builder
    words = "python -m launch.ec2 --help" if target == "launcher" else "--model cnn --dataset digits --epochs 1"
    return f"{runs} run --rm {name} {words}"
