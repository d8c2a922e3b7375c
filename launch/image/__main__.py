# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.image`."""

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from launch.core.terminal import say
from launch.core.verbs import Table, main_of_verbs, verbs_of
from launch.image.options import BuildOptions, PushOptions, ShowOptions

if TYPE_CHECKING:
    from launch.image.commands import Runtime

ABOUT = """\
Builds the container with docker, podman or buildah, or with CodeBuild where none is installed, and pushes it to the
account's repository.

  python -m launch.image push
  python -m launch.image push --target sagemaker
  python -m launch.image push --target launcher
  python -m launch.image push --builder codebuild --dry-run
"""

BUILD = """\
build the image on this machine

  python -m launch.image build
  python -m launch.image build --target jupyter --base pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime
"""

PUSH = """\
build the image and push it, unless the repository has the same content

  python -m launch.image push
  python -m launch.image push --target sagemaker --dry-run

The content is the Dockerfile, the trainer, the pinned versions and the name of the base.
"""

SHOW = """\
list the images in the repository

  python -m launch.image show
"""


def main(argv: Sequence[str], runtime: "Runtime | None" = None) -> int:
    """Runs the command line and returns its exit code."""

    def commands() -> object:
        from launch.image.commands import Commands  # slow to import, and --help does not need it

        return Commands(runtime or _runtime())

    table: Table = {
        "build": (BUILD, BuildOptions),
        "push": (PUSH, PushOptions),
        "show": (SHOW, ShowOptions),
    }
    return main_of_verbs("python -m launch.image", ABOUT, verbs_of(commands, table), argv)


def _runtime() -> "Runtime":
    from launch.aws.client import Aws
    from launch.core.clock import Clock
    from launch.image.commands import Runtime

    checkout = Path(__file__).resolve().parents[2]
    which = partial(shutil.which, path=os.environ.get("PATH"))
    return Runtime(partial(Aws, policy="builder"), checkout, which, os.environ, say, Clock())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
