"""`python -m launch.image`: the environment, the terminal and AWS, handed to what decides."""

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.core import cli
from launch.core.cli import Verb
from launch.image.options import BuildOptions, PushOptions, ShowOptions

if TYPE_CHECKING:
    from launch.core.aws import Aws

ABOUT = """\
Builds the container with docker, podman or buildah, or where there is none of them CodeBuild, and pushes it to the
account's repository.

  python -m launch.image push
  python -m launch.image push --target sagemaker
  python -m launch.image push --builder codebuild --dry-run
"""

BUILD = """\
builds the image on this machine

  python -m launch.image build
  python -m launch.image build --target jupyter --base pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime
"""

PUSH = """\
builds the image and pushes it, unless the same content is in the repository already

  python -m launch.image push
  python -m launch.image push --target sagemaker --dry-run

Content is the Dockerfile, the trainer, the pinned versions and the base's name.
"""

SHOW = """\
what the repository has

  python -m launch.image show
"""


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code."""
    verbs = {
        "build": Verb(BUILD, BuildOptions, _act("build")),
        "push": Verb(PUSH, PushOptions, _act("push")),
        "show": Verb(SHOW, ShowOptions, _act("show")),
    }
    return cli.main_of_verbs("python -m launch.image", ABOUT, verbs, argv)


def _act(name: str) -> Callable[[Any], int]:
    def do(options: Any) -> int:
        from launch.core.clock import Clock  # --help needs none of it
        from launch.image.commands import Acts

        checkout = Path(__file__).resolve().parents[2]
        which = partial(shutil.which, path=os.environ.get("PATH"))
        done: int = getattr(Acts(_aws, checkout, which, os.environ, cli.say, Clock()), name)(options)
        return done

    return do


def _aws(region: str | None) -> "Aws":
    from launch.core.aws import Aws

    return Aws(region, policy="builder")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
