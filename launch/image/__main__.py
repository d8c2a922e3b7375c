# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.image`."""

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.core import cli
from launch.core.cli import Verb
from launch.image.options import BuildOptions, PushOptions, ShowOptions

if TYPE_CHECKING:
    from launch.image.commands import Runtime

ABOUT = """\
Builds the container with docker, podman or buildah, or with CodeBuild where none is installed, and pushes it to the
account's repository.

  python -m launch.image push
  python -m launch.image push --target sagemaker
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

    def act(name: str, options: Any) -> int:
        from launch.image.commands import Commands  # slow to import, and --help does not need it

        code: int = getattr(Commands(runtime or _runtime()), name)(options)
        return code

    verbs = {
        "build": Verb(BUILD, BuildOptions, partial(act, "build")),
        "push": Verb(PUSH, PushOptions, partial(act, "push")),
        "show": Verb(SHOW, ShowOptions, partial(act, "show")),
    }
    return cli.main_of_verbs("python -m launch.image", ABOUT, verbs, argv)


def _runtime() -> "Runtime":
    from launch.core.aws import Aws
    from launch.core.clock import Clock
    from launch.image.commands import Runtime

    checkout = Path(__file__).resolve().parents[2]
    which = partial(shutil.which, path=os.environ.get("PATH"))
    return Runtime(partial(Aws, policy="builder"), checkout, which, os.environ, cli.say, Clock())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
