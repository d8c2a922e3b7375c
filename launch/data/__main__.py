# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.data`."""

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from launch.core.options import RegionOptions
from launch.core.terminal import confirm, say
from launch.core.verbs import Table, main_of_verbs, verbs_of
from launch.data.options import CopyOptions, DeleteOptions, NameOptions, PublishOptions

if TYPE_CHECKING:
    from launch.data.commands import Runtime

ABOUT = """\
Copies data sets into the account: to S3, and to a snapshot from which every EC2 node gets a volume.  No instance is
started, except with --by instance for data that are in S3.

  python -m launch.data publish photos --name photos --dry-run
  python -m launch.data publish photos --name photos
  python -m launch.ec2 --nodes 2 --dataset imagefolder --data photos
"""

PUBLISH = """\
prepare images, upload them, make the snapshot, and compare it with what was sent

  python -m launch.data publish photos --name photos
  python -m launch.data publish imagenet-prepared --name imagenet --to snapshot
  python -m launch.data publish photos --name photos --replace
  python -m launch.data publish s3://BUCKET/ILSVRC --name imagenet --by instance --dry-run

After an interruption, the same command continues.  Only files that differ are uploaded.
"""

STOP = """\
end the instance that publishes a data set; the same publish command continues later

  python -m launch.data stop imagenet
"""

LIST = """\
list the data sets of a region, including unfinished ones

  python -m launch.data list
"""

SHOW = """\
show a data set, and the commands that use it

  python -m launch.data show photos
"""

COPY = """\
copy a data set to another region

  python -m launch.data copy photos --to-region eu-west-1 --dry-run
  python -m launch.data copy photos --to-region eu-west-1
"""

DELETE = """\
delete a data set, after confirmation; refuses while a job reads it

  python -m launch.data delete photos --dry-run
  python -m launch.data delete photos --yes
"""


def main(argv: Sequence[str], runtime: "Runtime | None" = None) -> int:
    """Runs the command line and returns its exit code."""

    def commands() -> object:
        from launch.data.commands import Commands  # slow to import, and --help does not need it

        return Commands(runtime or _runtime())

    table: Table = {
        "publish": (PUBLISH, PublishOptions),
        "stop": (STOP, NameOptions),
        "list": (LIST, RegionOptions),
        "show": (SHOW, NameOptions),
        "copy": (COPY, CopyOptions),
        "delete": (DELETE, DeleteOptions),
    }
    return main_of_verbs("python -m launch.data", ABOUT, verbs_of(commands, table), argv)


def _runtime() -> "Runtime":
    from launch.aws.client import Aws
    from launch.core.clock import Clock
    from launch.data.commands import Runtime

    which = partial(shutil.which, path=os.environ.get("PATH"))
    return Runtime(partial(Aws, policy="data"), which, os.environ, Clock(), say, confirm)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
